//! What one stream has freed, and the fences that tell when the work before is over.

use super::bins::Bins;
use super::block::Slab;
use super::exact_fit::ExactFit;
use crate::fences::Fences;
use crate::handles::{Context, Stream};
use crate::rules;
use crate::slab::Id;

/// The free blocks of a queue, small and large.
pub(super) struct Blocks {
    /// At hand, where the stream's work is ordered by itself.
    exact: [ExactFit; 2],
    /// At hand, where it is not: those freed first come first.
    in_order: [ExactFit; 2],
    bins: [Bins; 2],
}

impl Blocks {
    #[cold]
    pub fn new() -> Box<Self> {
        Box::new(Blocks {
            exact: [ExactFit::new(), ExactFit::new()],
            in_order: [ExactFit::new(), ExactFit::new()],
            bins: [Bins::new(), Bins::new()],
        })
    }

    #[inline]
    pub fn bins_mut(&mut self, small: bool) -> &mut Bins {
        let [large, of_small] = &mut self.bins;
        if small { of_small } else { large }
    }

    /// What is at hand in one part of the addresses.
    fn unmerged(&self, ordered: bool, small: bool) -> &ExactFit {
        let [large, of_small] = if ordered { &self.exact } else { &self.in_order };
        if small { of_small } else { large }
    }

    /// As [`Blocks::unmerged`].
    fn unmerged_mut(&mut self, ordered: bool, small: bool) -> &mut ExactFit {
        let [large, of_small] = if ordered {
            &mut self.exact
        } else {
            &mut self.in_order
        };
        if small { of_small } else { large }
    }

    pub fn is_empty(&self) -> bool {
        let mut unmerged = self.exact.iter().chain(&self.in_order);
        unmerged.all(ExactFit::is_empty) && self.bins.iter().all(Bins::is_empty)
    }
}

/// One stream's part of a pool.
pub(super) struct StreamQueue<E> {
    /// The stream; `None` where nothing more is freed: it is destroyed.
    pub stream: Option<Stream>,
    pub context: Context,
    /// Whether the stream's later work comes after its earlier work by itself.
    pub ordered: bool,
    /// The stream is gone; the queue ends when its last fence is complete.
    pub ends: bool,
    pub fences: Fences<E>,
    /// Whether the pool knows that there may be free blocks.
    pub holds: bool,
    /// Later work of this queue waits for other queues' fences up to here; for its own where the
    /// stream's work is not ordered by itself.
    pub after: Vec<(u32, u64)>,
    pub blocks: Option<Box<Blocks>>,
}

impl<E: Copy> StreamQueue<E> {
    /// A queue whose fences count on after these.
    pub fn new(floor: u64) -> Self {
        StreamQueue {
            stream: None,
            context: Context(0),
            ordered: false,
            ends: false,
            fences: Fences::new(floor),
            holds: false,
            after: Vec::new(),
            blocks: None,
        }
    }

    pub fn serve(&mut self, stream: Stream) {
        self.stream = Some(stream);
        self.context = stream.context;
        self.ordered = stream.is_ordered();
        self.ends = false;
    }

    pub fn is_after(&self, queue: u32, fence: u64) -> bool {
        self.after
            .iter()
            .any(|(other, upto)| *other == queue && fence <= *upto)
    }

    /// Takes a block at hand of exactly this size out; `None` where the stream's work is not ordered by itself.
    #[inline(always)]
    pub fn take(&mut self, slab: &mut Slab, size: u64, small: bool) -> Option<Id> {
        let [large, of_small] = &mut self.blocks.as_mut()?.exact;
        (if small { of_small } else { large }).take(slab, size)
    }

    /// Keeps a block at hand where the stream's work is ordered by itself; false if there is no place for it.
    #[inline(always)]
    pub fn keep(&mut self, slab: &mut Slab, id: Id, size: u64, small: bool) -> bool {
        let [large, of_small] = &mut self.blocks.get_or_insert_with(Blocks::new).exact;
        (if small { of_small } else { large }).keep(slab, id, size)
    }

    /// As [`StreamQueue::take`], where the stream's work is not ordered by itself: the block that was freed first, if later
    /// work of the queue, which has this number, may use it.
    pub fn take_first(
        &mut self,
        slab: &mut Slab,
        number: u32,
        size: u64,
        small: bool,
    ) -> Option<Id> {
        let next = self.blocks.as_ref()?.unmerged(false, small).next(size)?;
        let usable = rules::may_use_unmerged(self.is_usable(number, slab.at(next).fence));
        let unmerged = self.blocks.as_mut()?.unmerged_mut(false, small);
        usable.then(|| unmerged.take(slab, size)).flatten()
    }

    /// As [`StreamQueue::keep`], where the stream's work is not ordered by itself.
    #[inline(never)]
    pub fn keep_last(&mut self, slab: &mut Slab, id: Id, size: u64, small: bool) -> bool {
        let blocks = self.blocks.get_or_insert_with(Blocks::new);
        blocks.unmerged_mut(false, small).keep_last(slab, id, size)
    }

    /// Whether later work of the queue, which has this number, comes after a fence of its own.
    pub fn is_usable(&self, number: u32, fence: u64) -> bool {
        fence <= self.fences.complete() || self.is_after(number, fence)
    }

    /// Takes any block at hand out.
    pub fn pop(&mut self, slab: &mut Slab, small: bool) -> Option<Id> {
        let blocks = self.blocks.as_mut()?;
        blocks.unmerged_mut(self.ordered, small).pop(slab)
    }

    /// Takes any block at hand out that later work of the queue, which has this number and no order of its own, may use.
    pub fn pop_usable(&mut self, slab: &mut Slab, number: u32, small: bool) -> Option<Id> {
        let is_usable = |next: Id| self.is_usable(number, slab.at(next).fence);
        let unmerged = self.blocks.as_ref()?.unmerged(false, small);
        let (size, _) = unmerged.nexts().find(|(_, next)| is_usable(*next))?;
        let unmerged = self.blocks.as_mut()?.unmerged_mut(false, small);
        unmerged.take(slab, size)
    }

    /// Bytes of the largest free block of one part of the addresses; 0 if there is none.
    pub fn largest(&self, slab: &Slab, small: bool) -> u64 {
        let Some(blocks) = &self.blocks else { return 0 };
        let unmerged = blocks.unmerged(self.ordered, small).largest();
        let bins = self.bins(small).map_or(0, |bins| bins.largest(slab));
        unmerged.max(bins)
    }

    /// The free blocks of one part of the addresses, if there may be any.
    #[inline]
    pub fn bins(&self, small: bool) -> Option<&Bins> {
        let [large, of_small] = &self.blocks.as_ref()?.bins;
        Some(if small { of_small } else { large })
    }

    #[inline]
    pub fn bins_mut(&mut self, small: bool) -> &mut Bins {
        self.blocks.get_or_insert_with(Blocks::new).bins_mut(small)
    }
}
