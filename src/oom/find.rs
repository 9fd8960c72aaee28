//! Requests that could not be met: what was asked for, what there was, and who held the rest.

use serde::Serialize;

use crate::ledger::{Block, Focus, Held, LiveAt, Visitor, by_stack, walk};
use crate::recording::Recording;
use gpushim_trace::{Event, Kind, Record};

/// How many are told of, the first ones; their holders take a map each.
const MOST: usize = 16;

/// A request that could not be met.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shortage {
    /// When, ns since the start.
    pub ns: u64,
    /// Its event.
    pub ticket: u64,
    /// Device ordinal.
    pub device: Option<u8>,
    /// Whether it is a framework that says so.
    pub by_framework: bool,
    /// Bytes asked for.
    pub size: u64,
    /// Id of the stack that asked, 0 if it was not recorded.
    pub stack: u32,
    /// The thread that asked.
    pub thread: u32,
    /// Bytes that were free on the device, and all of its bytes; as the driver said.
    pub device_free: Option<[u64; 2]>,
    /// What the pool, or the framework, had handed out and held then.
    pub held: Option<Cache>,
    /// Bytes live.
    pub live: u64,
    /// Who held them, those with most first.
    pub holders: Vec<Held>,
}

/// What an allocator with a cache had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
    /// Bytes held and not handed out.
    pub fn cached(self) -> u64 {
        self.reserved.saturating_sub(self.allocated)
    }
}

/// Why a request did not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// What was free and cached would have been enough together, but was in pieces.
    Fragmented,
    /// There was not so much, by so many bytes.
    Short(u64),
    /// The recording does not say.
    Unknown,
}

impl Shortage {
    /// All of a recording, the first ones.
    pub fn all(recording: &dyn Recording, focus: Focus) -> Vec<Shortage> {
        let mut find = Shortages::new(focus.device);
        walk(recording, focus, &mut [&mut find]);
        let mut found = find.found;
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

    /// Says which blocks were live then.
    pub fn held_by(&mut self, recording: &dyn Recording, blocks: &[Block]) {
        self.live = blocks
            .iter()
            .fold(0, |sum, block| sum.saturating_add(block.size));
        self.holders = by_stack(recording, blocks);
    }

    /// Bytes of the device that neither the process's pools nor its live blocks account for: other
    /// processes', and what the driver keeps for itself. `None` if the recording does not say.
    pub fn others(&self) -> Option<u64> {
        let held = self.held.filter(|_| !self.by_framework)?;
        let [free, total] = self.device_free?;
        let ours = self.live.saturating_add(held.cached());
        Some(total.saturating_sub(free).saturating_sub(ours))
    }

    /// Why it did not fit.
    pub fn why(&self) -> Why {
        let free = self.device_free.map(|[free, _]| free);
        let cached = self.held.map(Cache::cached);
        if free.is_none() && cached.is_none() {
            return Why::Unknown;
        }
        let there = free.unwrap_or(0).saturating_add(cached.unwrap_or(0));
        match self.size.checked_sub(there) {
            Some(short) if short > 0 => Why::Short(short),
            _ => Why::Fragmented,
        }
    }
}

/// Finds the requests that could not be met, the first ones, without who held the rest.
#[derive(Debug)]
pub struct Shortages {
    device: Option<u8>,
    /// Those found so far.
    pub found: Vec<Shortage>,
}

impl Shortages {
    /// Of one device only, or of all.
    pub fn new(device: Option<u8>) -> Shortages {
        Shortages {
            device,
            found: Vec::new(),
        }
    }
}

impl Visitor for Shortages {
    fn event(&mut self, record: &Record) {
        let event = &record.event;
        let is_device = self.device.is_none_or(|device| event.device == device);
        match event.kind {
            Kind::OutOfMemory | Kind::TensorOutOfMemory if is_device && self.found.len() < MOST => {
                let by_framework = event.kind == Kind::TensorOutOfMemory;
                let [first, second] = event.extra;
                self.found.push(Shortage {
                    ns: record.ns,
                    ticket: record.ticket,
                    device: (event.device != Event::NO_DEVICE).then_some(event.device),
                    by_framework,
                    size: event.size,
                    stack: event.stack,
                    thread: event.thread,
                    device_free: (!by_framework && second > 0).then_some([first, second]),
                    held: by_framework.then_some(Cache {
                        allocated: first,
                        reserved: second,
                        largest_free: None,
                        waiting: 0,
                    }),
                    live: 0,
                    holders: Vec::new(),
                });
            }
            Kind::PoolState => {
                // Of the shortage that it follows on its thread.
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
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
