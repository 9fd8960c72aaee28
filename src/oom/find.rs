//! Requests that ran out of memory: their size, the free memory, and the stacks that held the rest.

use serde::Serialize;

use crate::ledger::{Block, Focus, Held, LiveAt, Visitor, by_stack, walk};
use crate::recording::Recording;
use gpushim_trace::{Class, Event, Kind, Layer, Record};

/// Requests that are examined, the first ones: each needs a map of its holders.
const MOST: usize = 16;
/// The time within which the same thread must get about the same amount for the request to count as
/// served, ns.
const SOON: u64 = 1_000_000_000;

/// A request that could not be met.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Shortage {
    /// When, ns since the start.
    pub ns: u64,
    /// Its event.
    pub ticket: u64,
    /// Device ordinal.
    pub device: Option<u8>,
    /// True if a framework reported it.
    pub by_framework: bool,
    /// Bytes asked for.
    pub size: u64,
    /// Id of the stack that asked, 0 if it was not recorded.
    pub stack: u32,
    /// The thread that asked.
    pub thread: u32,
    /// The stream that it was for, 0 if that is the default stream or not known.
    pub stream: u64,
    /// True if it was ordered on a stream, at gpushim's pool or the driver's.
    pub is_ordered: bool,
    /// True if a framework reported the request and an allocator below refused it.
    pub refused_below: bool,
    /// True if it was met soon after, as where a framework gives back its cache and asks again.
    pub met_later: bool,
    /// Bytes that the framework said were free on the device.
    pub free_as_told: Option<u64>,
    /// Bytes that were free on the device, and all of its bytes; as the driver said.
    pub device_free: Option<[u64; 2]>,
    /// The allocated and reserved bytes of the pool or the framework.
    pub held: Option<Cache>,
    /// Bytes live.
    pub live: u64,
    /// The stacks that held them, those with most bytes first.
    pub holders: Vec<Held>,
    /// The blocks that were live, one by one.
    #[serde(skip)]
    pub blocks: Vec<Block>,
    /// Evidence of it in the recording.
    #[serde(skip)]
    pub event: Event,
}

/// The state of an allocator with a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cache {
    /// Bytes handed out.
    pub allocated: u64,
    /// Bytes held from below.
    pub reserved: u64,
    /// Bytes of its largest free block, if it said.
    pub largest_free: Option<u64>,
    /// Bytes that were freed and waited for captures and graphs.
    pub waiting: u64,
}

impl Cache {
    /// Returns the bytes that are reserved and not allocated.
    pub fn cached(self) -> u64 {
        self.reserved.saturating_sub(self.allocated)
    }
}

impl Shortage {
    /// Finds the first requests of a recording that failed.
    pub fn all(recording: &dyn Recording, focus: Focus) -> Vec<Shortage> {
        let mut find = Shortages::new(focus.device);
        walk(recording, focus, &mut [&mut find]);
        Shortage::described(find.found, recording, focus)
    }

    /// Finds the last request that did not succeed soon after, in a list of one; empty if there is
    /// none.
    pub fn last(recording: &dyn Recording, focus: Focus) -> Vec<Shortage> {
        let mut find = Shortages::last(focus.device);
        // Blocks are not needed here: the ledger's time is saved.
        (recording.events()).for_each(|record| find.event(&record));
        let last = find.found.into_iter().rfind(|one| !one.met_later);
        Shortage::described(last.into_iter().collect(), recording, focus)
    }

    /// Adds the holders of the rest of the memory, and the framework's own figures.
    fn described(
        mut found: Vec<Shortage>,
        recording: &dyn Recording,
        focus: Focus,
    ) -> Vec<Shortage> {
        if found.is_empty() {
            return found;
        }
        for one in &mut found {
            one.as_told(recording);
        }
        let mut live: Vec<LiveAt> = found.iter().map(|one| LiveAt::new(one.ticket)).collect();
        let mut visitors: Vec<&mut dyn Visitor> = Vec::new();
        for one in &mut live {
            visitors.push(one);
        }
        walk(recording, focus, &mut visitors);
        for (one, live) in found.iter_mut().zip(live) {
            one.held_by(recording, &live.into_blocks());
        }
        found
    }

    /// Sets the blocks that were live then.
    pub fn held_by(&mut self, recording: &dyn Recording, blocks: &[Block]) {
        // Only blocks of its device.
        let is_there = |block: &&Block| {
            (self.device).is_none_or(|device| [device, Event::NO_DEVICE].contains(&block.device))
        };
        let there = || blocks.iter().filter(is_there);
        self.live = there().fold(0, |sum, block| sum.saturating_add(block.size));
        self.holders = by_stack(recording, there());
        self.blocks = there().copied().collect();
    }

    /// Adds a framework's own figures, and the stream.
    pub fn as_told(&mut self, recording: &dyn Recording) {
        let record = Record {
            ticket: self.ticket,
            ns: self.ns,
            event: self.event,
        };
        self.stream = recording.stream(&record).unwrap_or(0);
        let Some(caching) = recording.caching().filter(|_| self.by_framework) else {
            return;
        };
        let refused = caching.refused.get(&self.ticket);
        (self.free_as_told, self.stream) = refused.copied().unwrap_or_default();
    }
}

/// Finds the first requests that ran out of memory, without the holders of the rest.
#[derive(Debug)]
pub struct Shortages {
    device: Option<u8>,
    /// True if the last ones are kept instead.
    keeps_last: bool,
    /// Requests found up to now.
    pub found: Vec<Shortage>,
}

impl Shortages {
    /// Searches one device only, or all.
    pub fn new(device: Option<u8>) -> Shortages {
        Shortages {
            device,
            keeps_last: false,
            found: Vec::new(),
        }
    }

    /// Finds the last requests in place of the first.
    pub fn last(device: Option<u8>) -> Shortages {
        Shortages {
            keeps_last: true,
            ..Shortages::new(device)
        }
    }
}

impl Shortages {
    /// Removes the refusals that a framework's report follows on its thread: they belong to the
    /// same request. Returns the driver's free memory at the last of them; `None` if there is none.
    fn below(&mut self, event: &Event) -> Option<Option<[u64; 2]>> {
        let mut below = None;
        while let Some(last) = self.found.last()
            && !last.by_framework
            && !last.met_later
            && last.thread == event.thread
        {
            below = below.or(Some(last.device_free));
            self.found.pop();
        }
        below
    }
}

impl Visitor for Shortages {
    fn event(&mut self, record: &Record) {
        let event = &record.event;
        let is_device = self.device.is_none_or(|device| event.device == device);
        match event.kind {
            Kind::OutOfMemory | Kind::TensorOutOfMemory
                if is_device && (self.keeps_last || self.found.len() < MOST) =>
            {
                if self.found.len() == MOST {
                    self.found.remove(0);
                }
                let by_framework = event.kind == Kind::TensorOutOfMemory;
                let [first, second] = event.extra;
                let below = if by_framework {
                    self.below(event)
                } else {
                    None
                };
                self.found.push(Shortage {
                    ns: record.ns,
                    ticket: record.ticket,
                    device: (event.device != Event::NO_DEVICE).then_some(event.device),
                    by_framework,
                    size: event.size,
                    stack: event.stack,
                    thread: event.thread,
                    stream: 0,
                    is_ordered: event.class == Class::PoolAsync,
                    refused_below: below.is_some(),
                    met_later: false,
                    free_as_told: None,
                    device_free: match by_framework {
                        true => below.flatten(),
                        false => (second > 0).then_some([first, second]),
                    },
                    held: by_framework.then_some(Cache {
                        allocated: first,
                        reserved: second,
                        largest_free: None,
                        waiting: 0,
                    }),
                    live: 0,
                    holders: Vec::new(),
                    blocks: Vec::new(),
                    event: *event,
                });
            }
            Kind::PoolState => {
                // The report belongs to the shortage before it on its thread.
                let of = self
                    .found
                    .iter_mut()
                    .rfind(|one| one.thread == event.thread);
                if let Some(one) = of.filter(|one| one.held.is_none()) {
                    one.held = Some(Cache {
                        allocated: event.size,
                        reserved: event.extra[0],
                        largest_free: Some(event.extra[1]),
                        waiting: event.address,
                    });
                }
            }
            Kind::TensorAlloc | Kind::Alloc => {
                // PyTorch announces the requested size. Others take the memory that they get later.
                let is_met = |last: &Shortage| match event.kind {
                    Kind::Alloc => {
                        event.class.layer() == Layer::Device
                            && event.size >= last.size - last.size / 8
                            && record.ns.saturating_sub(last.ns) < SOON
                    }
                    _ => true,
                };
                if let Some(last) = self.found.last_mut()
                    && last.thread == event.thread
                    && !last.by_framework
                    && is_met(last)
                {
                    last.met_later = true;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
