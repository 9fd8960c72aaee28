//! The figures of the moment of a failed request, and the memory that would have been enough, as
//! far as sums show.

use serde::Serialize;

use super::cause::{Cause, Place};
use super::find::Cache;
use super::search::{Candidate, Without, World};
use crate::recording::Peer;

/// Part of the device (1/`DRIVER_PART`) for the driver and its contexts, up to `DRIVER_NEEDS`.
/// Memory outside this process counts as other processes' only beyond it.
const DRIVER_PART: u64 = 10;
/// Highest number of bytes that count as the needs of the driver and its contexts.
const DRIVER_NEEDS: u64 = 1 << 30;
/// Bytes that a framework takes beyond a request: its cache grows by 2 MiB and more at a time.
const MORE_THAN_ASKED: u64 = 32 << 20;

/// The figures of the moment at which a request could not be met, in bytes of its device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Situation {
    /// The bytes of the request.
    pub size: u64,
    /// True if a framework reported it.
    pub by_framework: bool,
    /// True if a request to the driver or to gpushim's pools failed for a framework's report. `None` if the
    /// recording would not show it.
    pub asked_below: Option<bool>,
    /// `GPUSHIM_LIMIT`, if it was set.
    pub limit: Option<u64>,
    /// Other processes that share the limit, the largest first, when it last refused a request.
    pub peers: Vec<Peer>,
    /// `GPUSHIM_POLICY`, if it is known.
    pub policy: Option<String>,
    /// Memory that the driver had free.
    pub free: Option<u64>,
    /// All memory of the device.
    pub total: Option<u64>,
    /// Memory that the process held from the driver.
    pub held: u64,
    /// Memory of its contexts and code that a shared limit counts, when it last refused a request.
    pub rest: u64,
    /// The allocator that could not meet the request.
    pub cache: Option<Cache>,
    /// Free memory of its other pools.
    pub in_other_pools: u64,
    /// Free memory of its other streams.
    pub on_other_streams: u64,
    /// Free memory of a framework's cache, when another library asked.
    pub in_framework: u64,
    /// Memory that iterations left behind, and that each of them leaves, if memory surely grows.
    pub grows: Option<[u64; 2]>,
}

impl Situation {
    /// Returns the bytes of the limit that the process itself holds.
    pub fn of_limit(&self) -> u64 {
        self.held.saturating_add(self.rest)
    }

    /// Returns the bytes that peers hold of the limit.
    pub fn of_peers(&self) -> u64 {
        self.peers.iter().map(|peer| peer.held).sum()
    }

    /// Returns the free memory of the allocator itself that does not wait.
    pub fn cached(&self) -> u64 {
        self.cache
            .map_or(0, |cache| cache.cached().saturating_sub(cache.waiting))
    }

    /// Returns the memory of the device that this process does not hold.
    pub fn others(&self) -> Option<u64> {
        let used = self.total?.saturating_sub(self.free?);
        Some(used.saturating_sub(self.held))
    }

    /// Returns the bytes that iterations left behind.
    fn kept(&self) -> u64 {
        self.grows.map_or(0, |[kept, _]| kept)
    }

    /// Returns true if the framework refused memory that the device had.
    pub(super) fn has_framework_limit(&self) -> bool {
        self.by_framework
            && match (self.asked_below, self.free) {
                (Some(asked), _) => !asked,
                (None, Some(free)) => free >= self.size.saturating_add(MORE_THAN_ASKED),
                (None, None) => false,
            }
    }

    /// Returns the bytes that the driver could still provide.
    pub(super) fn room(&self, without: Without) -> u64 {
        let is_refused = self.has_framework_limit() && !without.has(Candidate::FrameworkLimit);
        if is_refused {
            return 0;
        }
        let unknown = match self.has_framework_limit() {
            // It is known that the device was not asked.
            true => self.size,
            false => 0,
        };
        let mut free = self.free.unwrap_or(unknown);
        if without.has(Candidate::Others) {
            let theirs = self.others().unwrap_or(0);
            free = free.saturating_add(theirs.saturating_sub(self.driver_needs()));
        }
        let limit = self.limit.filter(|_| !without.has(Candidate::Limit));
        let peers = match without.has(Candidate::Peers) {
            true => 0,
            false => self.of_peers(),
        };
        let held = self.of_limit().saturating_add(peers);
        limit.map_or(free, |limit| free.min(limit.saturating_sub(held)))
    }

    fn driver_needs(&self) -> u64 {
        (self.total.unwrap_or(0) / DRIVER_PART).min(DRIVER_NEEDS)
    }

    /// Returns the bound on one request, if the request is larger: `GPUSHIM_LIMIT` or the device.
    pub fn too_large(&self) -> Option<Cause> {
        let (limit, total) = (self.limit, self.total.filter(|total| *total > 0));
        let by_limit = limit.is_some_and(|limit| total.is_none_or(|total| limit <= total));
        let most = limit.into_iter().chain(total).min()?;
        (self.size > most).then_some(Cause::TooLarge { most, by_limit })
    }

    /// Returns true if the amount of memory is unknown.
    pub fn is_unknown(&self) -> bool {
        self.free.is_none() && self.cache.is_none()
    }

    /// Returns the cause if no set of conditions was enough.
    pub fn rest(&self) -> Cause {
        if self.is_unknown() || (self.free.is_none() && self.by_framework) {
            // The device's free memory may have been enough.
            return Cause::Unknown;
        }
        let there = self.room(Without::NONE).saturating_add(self.cached());
        match self.size.saturating_sub(there) {
            0 => Cause::DriverRefused {
                free: self.room(Without::NONE),
            },
            short => Cause::Full { short },
        }
    }

    /// Returns a candidate as a cause, with its bytes.
    pub(super) fn cause(&self, of: Candidate) -> Cause {
        let elsewhere = |bytes, place| Cause::CachedElsewhere { bytes, place };
        match of {
            Candidate::Leak => Cause::Growth {
                kept: self.kept(),
                per_iteration: self.grows.map_or(0, |[_, each]| each),
            },
            Candidate::FrameworkLimit => Cause::FrameworkLimit {
                free: self.free,
                reserved: self.cache.map_or(0, |cache| cache.reserved),
            },
            Candidate::Waiting => Cause::Waiting {
                bytes: self.cache.map_or(0, |cache| cache.waiting),
            },
            Candidate::Pools => elsewhere(self.in_other_pools, Place::Pool),
            Candidate::Streams => elsewhere(self.on_other_streams, Place::Stream),
            Candidate::FrameworkCache => elsewhere(self.in_framework, Place::Framework),
            Candidate::Pieces => Cause::Fragmentation {
                cached: self.cached(),
                largest: self.cache.and_then(|cache| cache.largest_free),
                of_framework: self.by_framework,
            },
            Candidate::Peers => Cause::Peers {
                bytes: self.of_peers(),
            },
            Candidate::Limit => Cause::OurLimit {
                limit: self.limit.unwrap_or(0),
                held: self.of_limit(),
            },
            Candidate::Others => Cause::OtherProcesses {
                bytes: self.others().unwrap_or(0),
            },
        }
    }
}

impl World for Situation {
    fn has(&self, one: Candidate) -> bool {
        match one {
            Candidate::Leak => self.kept() > 0,
            Candidate::FrameworkLimit => self.has_framework_limit(),
            Candidate::Waiting => self.cache.is_some_and(|cache| cache.waiting > 0),
            Candidate::Pools => self.in_other_pools > 0,
            Candidate::Streams => self.on_other_streams > 0,
            Candidate::FrameworkCache => self.in_framework > 0,
            Candidate::Pieces => self.cached() > 0,
            Candidate::Peers => self.limit.is_some() && self.of_peers() > 0,
            Candidate::Limit => self.limit.is_some(),
            Candidate::Others => {
                (self.others()).is_some_and(|bytes| bytes > self.total.unwrap_or(0) / DRIVER_PART)
            }
        }
    }

    fn fits(&self, without: Without) -> bool {
        let waiting = self.cache.map_or(0, |cache| cache.waiting);
        let elsewhere = self.in_other_pools.saturating_add(self.on_other_streams);
        let own = self.cached().saturating_sub(elsewhere);
        let parts = [
            (Candidate::Leak, self.kept()),
            (Candidate::Waiting, waiting),
            (Candidate::Pools, self.in_other_pools),
            (Candidate::Streams, self.on_other_streams),
            (Candidate::FrameworkCache, self.in_framework),
            (Candidate::Pieces, own),
        ];
        let mut there = self.room(without);
        for (one, bytes) in parts {
            if without.has(one) {
                there = there.saturating_add(bytes);
            }
        }
        there >= self.size
    }
}

#[cfg(test)]
mod tests;
