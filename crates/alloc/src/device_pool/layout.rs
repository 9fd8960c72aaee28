//! Which free memory answers a request: one of two ways, chosen by the policy.

use super::block::{Fit, Id, Slab};
use super::blocks::Blocks;
use super::segments::{Map, Segments};
use crate::policy::Policy;
use crate::size_class;

/// The free memory of one arena.
#[expect(
    clippy::large_enum_variant,
    reason = "the default policy's is reached without a detour"
)]
pub(super) enum Layout {
    /// Whole driver allocations, under the policy `blocks`.
    Whole(Blocks),
    /// Parts of driver allocations, under the policy `segments`.
    Split(Box<Segments>),
}

impl Layout {
    /// Under [`Policy::Off`] and [`Policy::Vmm`] nothing is ever kept.
    pub fn new(policy: Policy, slack: u64) -> Self {
        match policy {
            Policy::Blocks | Policy::Off | Policy::Vmm => Layout::Whole(Blocks::new(slack)),
            Policy::Segments => Layout::Split(Box::new(Segments::new())),
        }
    }

    #[inline]
    pub fn take(&mut self, slab: &mut Slab, map: &mut Map, bytes: u64, ready: u64) -> Fit {
        match self {
            Layout::Whole(blocks) => blocks.take(slab, bytes, ready),
            Layout::Split(segments) => segments.take(slab, map, bytes, ready, false),
        }
    }

    /// The same, but a block may be larger than the slack allows.
    pub fn take_loosely(&mut self, slab: &mut Slab, map: &mut Map, bytes: u64, ready: u64) -> Fit {
        match self {
            Layout::Whole(blocks) => blocks.take_loosely(slab, bytes, ready),
            Layout::Split(segments) => segments.take(slab, map, bytes, ready, true),
        }
    }

    /// Keeps a freed block, whose fence is the open one.
    #[inline]
    pub fn insert(&mut self, slab: &mut Slab, id: Id) {
        match self {
            Layout::Whole(blocks) => blocks.insert(slab, id),
            Layout::Split(segments) => segments.insert(slab, id),
        }
    }

    /// Keeps a block that was in a thread cache and not taken.
    pub fn insert_ready(&mut self, slab: &mut Slab, id: Id) {
        match self {
            Layout::Whole(blocks) => blocks.insert_ready(slab, id),
            Layout::Split(segments) => segments.insert(slab, id),
        }
    }

    /// Takes up to `most` more ready blocks of at least `bytes` bytes that are like one that was
    /// taken, for the thread cache.
    pub fn take_alike(
        &mut self,
        slab: &mut Slab,
        like: Id,
        bytes: u64,
        most: usize,
        each: impl FnMut(&mut Slab, Id),
    ) {
        if let Layout::Whole(blocks) = self {
            blocks.take_alike(slab, like, bytes, most, each);
        }
    }

    /// Bytes to request from the driver when nothing serves the request.
    pub fn growth(&self, bytes: u64) -> u64 {
        match self {
            Layout::Whole(_) => size_class::block_bytes(bytes),
            Layout::Split(_) => Segments::growth(bytes),
        }
    }

    /// A driver allocation has arrived for a request: hands the block out of it.
    pub fn grown(&mut self, slab: &mut Slab, map: &mut Map, id: Id, bytes: u64) {
        if let Layout::Split(segments) = self {
            segments.grown(slab, map, id, bytes);
        }
    }

    /// The address of a block left the process.
    pub fn export(&mut self, slab: &mut Slab, id: Id) {
        match self {
            Layout::Whole(_) => slab.at_mut(id).exported = true,
            Layout::Split(segments) => segments.export(slab, id),
        }
    }

    /// The driver allocation that would be given back next.
    pub fn oldest(&self, slab: &Slab) -> Option<Id> {
        match self {
            Layout::Whole(blocks) => blocks.oldest(slab),
            Layout::Split(segments) => segments.oldest(),
        }
    }

    /// Takes out the driver allocation that has been free for longest.
    pub fn evict(&mut self, slab: &mut Slab) -> Option<Id> {
        match self {
            Layout::Whole(blocks) => blocks.evict(slab),
            Layout::Split(segments) => segments.evict(slab),
        }
    }
}
