//! Why a request could not be met: the causes, the evidence for each, and the order in which they are preferred.

use serde::Serialize;

use super::find::Cache;

/// Memory below this part of the device that this process does not hold is what the driver and its contexts need.
const DRIVER_PART: u64 = 10;

/// Why a request could not be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum Cause {
    /// The request is larger than the limit or the whole device. Evidence: its size against `GPUSHIM_LIMIT` and the
    /// driver's total.
    TooLarge {
        /// The most that one request can get, bytes.
        most: u64,
        /// Whether that is `GPUSHIM_LIMIT`, and not the memory of the device.
        by_limit: bool,
    },
    /// What iterations left behind is at least as much as was missing. Evidence: the growth analysis is sure.
    Growth {
        /// Bytes that iterations left behind.
        kept: u64,
        /// Bytes of each iteration.
        per_iteration: u64,
    },
    /// PyTorch refused the request itself, as `set_per_process_memory_fraction` tells it to. Evidence: no request for
    /// memory failed below it although it reported one, or the device had the memory free.
    FrameworkLimit {
        /// Bytes that the device had free, if that is known.
        free: Option<u64>,
        /// Bytes that PyTorch held.
        reserved: u64,
    },
    /// Memory that the program has freed waits for captures, graphs or streams, and is enough. Evidence: the pool's own
    /// state, or blocks of a snapshot that streams still used.
    Waiting {
        /// Bytes that wait.
        bytes: u64,
    },
    /// The free memory of other pools or streams of the same allocator, or of another layer, is enough. Evidence: what
    /// these had reserved and not handed out.
    CachedElsewhere {
        /// Free bytes there.
        bytes: u64,
        /// Where they are.
        place: Place,
    },
    /// Free memory is enough, but no piece of it is. Evidence: cached and free memory against the request and the
    /// largest free piece.
    Fragmentation {
        /// Bytes of the cache that are free.
        cached: u64,
        /// The largest free piece, if it is known.
        largest: Option<u64>,
        /// Whether it is the framework's cache, and not gpushim's pool.
        of_framework: bool,
    },
    /// Without `GPUSHIM_LIMIT` it would have fitted. Evidence: the limit, what the process held, and what the device had
    /// free.
    OurLimit {
        /// The limit, bytes.
        limit: u64,
        /// Bytes that the process held.
        held: u64,
    },
    /// Without other processes it would have fitted. Evidence: what the driver says is in use, less what this process
    /// holds, is more than a driver needs for itself.
    OtherProcesses {
        /// Bytes that they held, with what the driver needs.
        bytes: u64,
    },
    /// The driver refused although it had the memory free. Evidence: the driver's own figures after the refusal.
    DriverRefused {
        /// Bytes that were free.
        free: u64,
    },
    /// The process itself uses the memory. Evidence: free and cached memory together are less than the request.
    Full {
        /// By how many bytes.
        short: u64,
    },
    /// The recording does not say.
    Unknown,
}

/// Where free memory is that a request could not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// Another pool of the framework: of CUDA graphs, or made by the program.
    Pool,
    /// Blocks of the framework's cache that belong to other streams.
    Stream,
    /// A framework's cache, when another library asked the driver.
    Framework,
}

/// What is known of the moment at which a request could not be met. Figures are bytes of its device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Situation {
    /// What was asked for.
    pub size: u64,
    /// Whether a framework reported it.
    pub by_framework: bool,
    /// Of a framework's report: whether a request to the driver or to gpushim's pools failed for it. `None` if the
    /// recording would not tell.
    pub asked_below: Option<bool>,
    /// `GPUSHIM_LIMIT`, if it was set.
    pub limit: Option<u64>,
    /// `GPUSHIM_POLICY`, if it is known.
    pub policy: Option<String>,
    /// What the driver had free.
    pub free: Option<u64>,
    /// All memory of the device.
    pub total: Option<u64>,
    /// What the process held from the driver.
    pub held: u64,
    /// The allocator that could not meet the request.
    pub cache: Option<Cache>,
    /// Free memory of its other pools.
    pub in_other_pools: u64,
    /// Free memory of its other streams.
    pub on_other_streams: u64,
    /// Free memory of a framework's cache, when another library asked.
    pub in_framework: u64,
    /// What iterations left behind, and what each of them leaves, if memory surely grows.
    pub grows: Option<[u64; 2]>,
}

impl Situation {
    /// Free memory of the allocator itself, that does not wait.
    pub fn cached(&self) -> u64 {
        self.cache
            .map_or(0, |cache| cache.cached().saturating_sub(cache.waiting))
    }

    /// What could still be got from the driver, within the limit.
    pub fn room(&self) -> u64 {
        let free = self.free.unwrap_or(0);
        let allowed = self.limit.map(|limit| limit.saturating_sub(self.held));
        free.min(allowed.unwrap_or(u64::MAX))
    }

    /// Memory of the device that this process does not hold.
    pub fn others(&self) -> Option<u64> {
        let used = self.total?.saturating_sub(self.free?);
        Some(used.saturating_sub(self.held))
    }

    /// Everything that is evident, the cause first: what holds alone before what only adds to it.
    pub fn causes(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(cause) = self.too_large() {
            return vec![cause];
        }
        if self.free.is_none() && self.cache.is_none() {
            causes.extend(self.growth(1));
            causes.push(Cause::Unknown);
            return causes;
        }
        let there = self.room().saturating_add(self.cached());
        let short = self.size.saturating_sub(there);
        causes.extend(self.growth(short.max(1)));
        causes.extend(self.framework_limit());
        causes.extend(self.waiting(short));
        let elsewhere = self.elsewhere(short);
        causes.extend(elsewhere);
        if short == 0 {
            if elsewhere.is_none() {
                causes.push(self.in_pieces());
            }
            return causes;
        }
        causes.extend(self.our_limit(short));
        causes.extend(self.other_processes(short));
        if causes.is_empty() {
            causes.push(if self.free.is_none() && self.by_framework {
                // What the device had free is not known: it may have been enough.
                Cause::Unknown
            } else {
                Cause::Full { short }
            });
        }
        causes
    }

    fn too_large(&self) -> Option<Cause> {
        let (limit, total) = (self.limit, self.total.filter(|total| *total > 0));
        let by_limit = limit.is_some_and(|limit| total.is_none_or(|total| limit <= total));
        let most = limit.into_iter().chain(total).min()?;
        (self.size > most).then_some(Cause::TooLarge { most, by_limit })
    }

    fn growth(&self, short: u64) -> Option<Cause> {
        let [kept, per_iteration] = self.grows?;
        (kept >= short).then_some(Cause::Growth {
            kept,
            per_iteration,
        })
    }

    fn framework_limit(&self) -> Option<Cause> {
        let cache = self.cache.filter(|_| self.by_framework)?;
        let is_it = match (self.asked_below, self.free) {
            (Some(asked), _) => !asked,
            // Its cache grows by 2 MiB and more at a time.
            (None, Some(free)) => free >= self.size.saturating_add(32 << 20),
            (None, None) => false,
        };
        is_it.then_some(Cause::FrameworkLimit {
            free: self.free,
            reserved: cache.reserved,
        })
    }

    fn waiting(&self, short: u64) -> Option<Cause> {
        let bytes = self.cache?.waiting;
        (bytes > 0 && short > 0 && bytes >= short).then_some(Cause::Waiting { bytes })
    }

    /// Free memory that only others can use. What its own pools and streams have is counted as cached.
    fn elsewhere(&self, short: u64) -> Option<Cause> {
        let of_own = self.in_other_pools.saturating_add(self.on_other_streams);
        let own = self.cached().saturating_sub(of_own);
        let short_of_own = (self.size).saturating_sub(self.room().saturating_add(own));
        let (bytes, place) = [
            (self.in_other_pools, Place::Pool),
            (self.on_other_streams, Place::Stream),
        ]
        .into_iter()
        .max_by_key(|(bytes, _)| *bytes)?;
        if short_of_own > 0 && bytes >= short_of_own {
            return Some(Cause::CachedElsewhere { bytes, place });
        }
        let (bytes, place) = (self.in_framework, Place::Framework);
        (short > 0 && bytes >= short).then_some(Cause::CachedElsewhere { bytes, place })
    }

    /// There was enough, of which nothing came.
    fn in_pieces(&self) -> Cause {
        let (cached, room) = (self.cached(), self.room());
        if cached == 0 || (room >= self.size && !self.by_framework) {
            return Cause::DriverRefused { free: room };
        }
        Cause::Fragmentation {
            cached,
            largest: self.cache.and_then(|cache| cache.largest_free),
            of_framework: self.by_framework,
        }
    }

    fn our_limit(&self, short: u64) -> Option<Cause> {
        let limit = self.limit?;
        let allowed = limit.saturating_sub(self.held);
        let more = self.free?.saturating_sub(allowed);
        (more >= short).then_some(Cause::OurLimit {
            limit,
            held: self.held,
        })
    }

    fn other_processes(&self, short: u64) -> Option<Cause> {
        let bytes = self.others()?;
        let is_more = bytes > self.total? / DRIVER_PART;
        (is_more && bytes >= short).then_some(Cause::OtherProcesses { bytes })
    }
}

#[cfg(test)]
mod tests;
