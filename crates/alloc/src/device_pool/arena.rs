//! The memory of one context.

use super::block::Id;
use super::cached_blocks::CachedBlocks;
use super::fences::Fences;
use crate::handles::{Address, Context};
use rustc_hash::FxHashSet;

/// A context that was given access to the arena's memory.
pub(super) struct Peer {
    pub context: Context,
    /// Access was taken away while this fence was open: until it is complete, work from before may
    /// still be running. That later work is ordered after it is not enough: memory that goes back
    /// to the driver waits for those contexts only that are named.
    pub until: Option<u64>,
}

pub(super) struct Arena<E> {
    pub context: Context,
    /// As [`super::Device::born`].
    pub born: u64,
    /// Tells arenas apart when a context's handle is used again.
    pub serial: u64,
    /// Index of the device.
    pub device: usize,
    pub fences: Fences<E>,
    pub cached: CachedBlocks,
    pub allocated: u64,
    pub reserved: u64,
    /// Highest `allocated` in this window of time and in the one before, bytes.
    peaks: [u64; 2],
    pub peers: Vec<Peer>,
    /// Addresses of its blocks.
    pub bases: FxHashSet<Address>,
    /// Its blocks, while the context is about to end and no address leads to them.
    pub leaving: Vec<Id>,
}

impl<E: Copy> Arena<E> {
    pub fn new(
        context: Context,
        born: u64,
        serial: u64,
        device: usize,
        cached: CachedBlocks,
    ) -> Self {
        Arena {
            context,
            born,
            serial,
            device,
            fences: Fences::new(),
            cached,
            allocated: 0,
            reserved: 0,
            peaks: [0; 2],
            peers: Vec::new(),
            bases: FxHashSet::default(),
            leaving: Vec::new(),
        }
    }

    #[inline]
    pub fn allocated(&mut self, bytes: u64) {
        self.allocated += bytes;
        let [now, _] = &mut self.peaks;
        *now = self.allocated.max(*now);
    }

    /// Highest `allocated` of late, bytes.
    pub fn recent_peak(&self) -> u64 {
        let [now, before] = self.peaks;
        now.max(before)
    }

    /// Whether the context is about to end: no address leads to its blocks, and none of them goes back.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// A window of time is over.
    pub fn roll(&mut self) {
        let [now, _] = self.peaks;
        self.peaks = [self.allocated, now];
    }

    /// Accessors whose work may be running on the arena's memory.
    pub fn accessors(&self) -> impl Iterator<Item = Context> {
        let complete = self.fences.timeline.complete();
        self.peers
            .iter()
            .filter(move |peer| peer.until.is_none_or(|until| complete < until))
            .map(|peer| peer.context)
    }
}
