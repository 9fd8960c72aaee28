//! The memory that blocks are cut from: segments of the shim's pools, or the driver's memory below
//! a framework's tensors.

use std::collections::BTreeMap;

use super::apply::Ledger;
use super::block::{Block, Focus, is_on};
use super::change::Change;
use gpushim_recording::Recording;
use gpushim_trace::{Effect, Event, Layer, Record};

/// Memory that was taken as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes that it reaches from its address.
    pub size: u64,
    /// Ordinal of the device on which it lies, in CUDA.
    pub device: u8,
    /// True for the memory of one allocation that the pool only passed on.
    pub whole: bool,
    /// True if its address is known to be one: a block was in it.
    pub used: bool,
}

/// The segments that are reserved now.
#[derive(Clone, Debug)]
pub struct Segments {
    /// True for the memory below tensors; false for the segments that pools report.
    is_below: bool,
    device: Option<u8>,
    ledger: Ledger,
    held: Held,
}

/// Memory by address, and its sums.
#[derive(Clone, Debug, Default)]
struct Held {
    by_address: BTreeMap<u64, Taken>,
    total: u64,
}

impl Segments {
    /// Starts with the segments at the first readable event. A framework that announces its tensors
    /// cuts them from its own allocations, if the recording has them. Otherwise the recording's
    /// segments are taken.
    pub fn of(recording: &dyn Recording, focus: Focus) -> Segments {
        let is_driver = |event: &Event| match Effect::of(event) {
            Effect::Allocated(bytes) => bytes.layer == Layer::Device,
            _ => false,
        };
        let mut segments = Segments {
            is_below: focus.layer == Layer::Tensor
                && recording.events().any(|record| is_driver(&record.event)),
            device: focus.device,
            ledger: Ledger::new(None),
            held: Held::default(),
        };
        let (older, _) = recording.older();
        segments.with(|ledger, say| ledger.begin(&older, say));
        segments
    }

    /// Returns the bytes that are held.
    pub fn total(&self) -> u64 {
        self.held.total
    }

    /// Returns the segments in the order of addresses; below tensors only the ones that had any.
    pub fn held(&self) -> impl Iterator<Item = (u64, Taken)> + '_ {
        let all = self.held.by_address.iter().map(|(at, taken)| (*at, *taken));
        all.filter(|(_, taken)| !self.is_below || taken.used)
    }

    /// Notes that a block lies at this address: the memory around it is known to be used for
    /// blocks.
    pub fn uses(&mut self, address: u64) {
        let before = self.held.by_address.range_mut(..=address).next_back();
        if let Some((at, taken)) = before
            && address - at < taken.size
        {
            taken.used = true;
        }
    }

    /// Takes an event into account.
    pub fn feed(&mut self, record: &Record) {
        self.with(|ledger, say| ledger.apply(record, say));
    }

    fn with(&mut self, act: impl FnOnce(&mut Ledger, &mut dyn FnMut(&Change))) {
        let Segments {
            is_below,
            device,
            ledger,
            held,
        } = self;
        let is_ours = |block: &Block| block.is_segment(*is_below) && is_on(*device, block.device);
        act(ledger, &mut |change| match change {
            Change::WasThere(block) | Change::Allocated(block) if is_ours(block) => {
                held.take(block.address, block.room, block.device, true);
            }
            Change::Freed(block) if is_ours(block) => held.give(block.address, true),
            Change::Reserved(one) if !*is_below && is_on(*device, one.device) => {
                held.take(one.address, one.size, one.device, false);
            }
            Change::Released(one) if !*is_below => held.give(one.address, false),
            _ => {}
        });
    }
}

impl Held {
    fn take(&mut self, address: u64, size: u64, device: u8, whole: bool) {
        let taken = Taken {
            size,
            device,
            whole,
            used: false,
        };
        if let Some(before) = self.by_address.insert(address, taken) {
            self.total = self.total.saturating_sub(before.size);
        }
        self.total = self.total.saturating_add(size);
    }

    fn give(&mut self, address: u64, whole: bool) {
        let is_it = |taken: &&Taken| taken.whole == whole;
        if let Some(taken) = self.by_address.get(&address).filter(is_it).copied() {
            self.by_address.remove(&address);
            self.total = self.total.saturating_sub(taken.size);
        }
    }
}
