//! Freed blocks of one stream, and the fences that tell when the work before their frees is
//! complete.

use super::bins::Bins;
use super::block::Slab;
use super::exact_fit::ExactFit;
use crate::fences::Fences;
use crate::handles::{Context, Stream};
use crate::rules;
use crate::slab::Id;

/// The free blocks of a queue, small and large.
pub(super) struct Blocks {
    /// Unmerged blocks of an ordered queue.
    exact: [ExactFit; 2],
    /// Unmerged blocks of an unordered queue; the block freed first is reused first.
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

    /// Unmerged blocks in one part of the addresses.
    fn unmerged(&self, ordered: bool, small: bool) -> &ExactFit {
        let [large, of_small] = if ordered { &self.exact } else { &self.in_order };
        if small { of_small } else { large }
    }

    /// Unmerged blocks in one part of the addresses, to be changed.
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

/// A queue of freed blocks, for one stream.
pub(super) struct StreamQueue<E> {
    /// Stream that the queue serves; `None` once the stream is destroyed: nothing more is freed
    /// here.
    pub stream: Option<Stream>,
    pub context: Context,
    /// True if the stream's later work always comes after its earlier work. False for the queue of
    /// all streams of a context or device.
    pub ordered: bool,
    /// True if the stream is gone. The queue ends when its last fence is complete.
    pub ends: bool,
    pub fences: Fences<E>,
    /// True if the pool knows that there may be free blocks.
    pub holds: bool,
    /// Fences of other queues that this queue's later work comes after, each with all before it. An
    /// unordered queue may have fences of its own here.
    pub after: Vec<(u32, u64)>,
    pub blocks: Option<Box<Blocks>>,
}

impl<E: Copy> StreamQueue<E> {
    /// Makes a queue without a stream, whose fences are numbered from `floor + 1` on.
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

    /// Takes an unmerged block of exactly this size out. `None` if the queue is not ordered.
    #[inline(always)]
    pub fn take(&mut self, slab: &mut Slab, size: u64, small: bool) -> Option<Id> {
        let [large, of_small] = &mut self.blocks.as_mut()?.exact;
        (if small { of_small } else { large }).take(slab, size)
    }

    /// Keeps a block unmerged in an ordered queue. Returns false if there is no room for it.
    #[inline(always)]
    pub fn keep(&mut self, slab: &mut Slab, id: Id, size: u64, small: bool) -> bool {
        let [large, of_small] = &mut self.blocks.get_or_insert_with(Blocks::new).exact;
        (if small { of_small } else { large }).keep(slab, id, size)
    }

    /// Takes the unmerged block of exactly this size that was freed first out of an unordered
    /// queue. `None` if the later work of the queue, whose number is `number`, may not use it.
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

    /// Keeps a block unmerged in an unordered queue. Returns false if there is no room for it.
    #[inline(never)]
    pub fn keep_last(&mut self, slab: &mut Slab, id: Id, size: u64, small: bool) -> bool {
        let blocks = self.blocks.get_or_insert_with(Blocks::new);
        blocks.unmerged_mut(false, small).keep_last(slab, id, size)
    }

    /// True if later work of the queue, whose number is `number`, comes after its own fence
    /// `fence`.
    pub fn is_usable(&self, number: u32, fence: u64) -> bool {
        fence <= self.fences.complete() || self.is_after(number, fence)
    }

    /// Takes any unmerged block out.
    pub fn pop(&mut self, slab: &mut Slab, small: bool) -> Option<Id> {
        let blocks = self.blocks.as_mut()?;
        blocks.unmerged_mut(self.ordered, small).pop(slab)
    }

    /// Takes an unmerged block that later work may use out of an unordered queue, whose number is
    /// `number`.
    pub fn pop_usable(&mut self, slab: &mut Slab, number: u32, small: bool) -> Option<Id> {
        let is_usable = |next: Id| self.is_usable(number, slab.at(next).fence);
        let unmerged = self.blocks.as_ref()?.unmerged(false, small);
        let (size, _) = unmerged.nexts().find(|(_, next)| is_usable(*next))?;
        let unmerged = self.blocks.as_mut()?.unmerged_mut(false, small);
        unmerged.take(slab, size)
    }

    /// Bytes of the largest free block in one part of the addresses; 0 if there is none.
    pub fn largest(&self, slab: &Slab, small: bool) -> u64 {
        let Some(blocks) = &self.blocks else { return 0 };
        let unmerged = blocks.unmerged(self.ordered, small).largest();
        let bins = self.bins(small).map_or(0, |bins| bins.largest(slab));
        unmerged.max(bins)
    }

    /// Merged free blocks in one part of the addresses; `None` if there are none.
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
