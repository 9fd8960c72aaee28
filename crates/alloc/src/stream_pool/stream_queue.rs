//! What one stream has freed, and the fences that tell when the work before is over.

use super::block::Slab;
use super::exact_fit::ExactFit;
use super::mutation::{Mutation, on};
use crate::bins::Bins;
use crate::handles::{Context, Stream};
use crate::slab::Id;
use std::collections::VecDeque;

/// The free blocks of a queue, small and large.
pub(super) struct Blocks {
    exact: [ExactFit; 2],
    bins: [Bins; 2],
}

impl Blocks {
    #[cold]
    pub fn new() -> Box<Self> {
        Box::new(Blocks {
            exact: [ExactFit::new(), ExactFit::new()],
            bins: [Bins::new(), Bins::new()],
        })
    }

    #[inline]
    pub fn bins_mut(&mut self, small: bool) -> &mut Bins {
        let [large, of_small] = &mut self.bins;
        if small { of_small } else { large }
    }

    pub fn is_empty(&self) -> bool {
        self.exact.iter().all(ExactFit::is_empty) && self.bins.iter().all(Bins::is_empty)
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
    /// Number of the fence that frees join now, from 1.
    pub open: u64,
    joined: bool,
    /// Whether the pool knows that there may be free blocks.
    pub holds: bool,
    /// Fences with events that are not known to be complete, oldest first.
    pub closed: VecDeque<(u64, E)>,
    pub complete: u64,
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
            open: floor + 1,
            joined: false,
            holds: false,
            closed: VecDeque::new(),
            complete: floor,
            after: Vec::new(),
            blocks: None,
        }
    }

    pub fn serve(&mut self, stream: Stream) {
        self.stream = Some(stream);
        self.context = stream.context;
        self.ordered = stream.is_ordered();
        self.ends = false;
        if !on(Mutation::KeepOrder) {
            self.after.clear();
        }
    }

    /// The fence that a free joins, and whether it is the first to do so.
    #[inline]
    pub fn join(&mut self) -> (u64, bool) {
        let is_first = !std::mem::replace(&mut self.joined, true);
        (self.joins(), is_first)
    }

    #[inline]
    fn joins(&self) -> u64 {
        if on(Mutation::NoFence) {
            return 0;
        }
        self.open - u64::from(on(Mutation::OlderFence))
    }

    /// Ends the open fence, if anything joined it: later frees belong to the next. Returns the last
    /// fence that is not open.
    pub fn close(&mut self) -> u64 {
        if self.joined {
            self.open += u64::from(!on(Mutation::NoClose));
            self.joined = false;
        }
        self.open - u64::from(!on(Mutation::NoClose))
    }

    /// Whether a fence is still open.
    pub fn is_open(&self, fence: u64) -> bool {
        fence >= self.open
    }

    /// The first fence with an event that covers this one.
    pub fn covering(&self, fence: u64) -> Option<(u64, E)> {
        let at = self.closed.partition_point(|(id, _)| *id < fence);
        if on(Mutation::OrderOlder) {
            return self.first().map(|(_, event)| (fence, event));
        }
        self.closed.get(at).copied()
    }

    /// The first fence that is not known to be complete.
    pub fn first(&self) -> Option<(u64, E)> {
        self.closed.front().copied()
    }

    /// Whether blocks have joined whose fence has no event.
    pub fn lacks_event(&self) -> bool {
        let last = self.closed.back().map_or(0, |(id, _)| *id);
        self.joined || last.max(self.complete) + 1 < self.open
    }

    /// The last fence with an event, unless it is complete.
    pub fn last(&self) -> Option<(u64, E)> {
        let last = self.closed.back().copied();
        last.filter(|(id, _)| *id > self.complete)
    }

    /// The event of a closed fence.
    pub fn recorded(&mut self, fence: u64, event: E) {
        let at = self.closed.partition_point(|(id, _)| *id < fence);
        self.closed.insert(at, (fence, event));
    }

    /// All work before the closing of this fence is done.
    pub fn completed(&mut self, fence: u64) {
        self.complete = self.complete.max(fence);
    }

    /// Events that are not needed any more: their fences are complete.
    pub fn superfluous(&mut self) -> Option<E> {
        let (id, event) = *self.closed.front()?;
        (id <= self.complete || on(Mutation::RetireEarly)).then(|| {
            self.closed.pop_front();
            event
        })
    }

    pub fn is_after(&self, queue: u32, fence: u64) -> bool {
        self.after
            .iter()
            .any(|(other, upto)| *other == queue && fence <= *upto)
    }

    /// Whether the work before all that was freed is over, and no event is left.
    pub fn is_over(&self) -> bool {
        !self.joined && self.complete + 1 >= self.open && self.closed.is_empty()
    }

    /// Takes a block at hand of exactly this size out.
    #[inline(always)]
    pub fn take(&mut self, slab: &mut Slab, size: u64, small: bool) -> Option<Id> {
        let [large, of_small] = &mut self.blocks.as_mut()?.exact;
        (if small { of_small } else { large }).take(slab, size)
    }

    /// Keeps a block at hand; false if there is no place for it.
    #[inline(always)]
    pub fn keep(&mut self, slab: &mut Slab, id: Id, size: u64, small: bool) -> bool {
        let [large, of_small] = &mut self.blocks.get_or_insert_with(Blocks::new).exact;
        (if small { of_small } else { large }).keep(slab, id, size)
    }

    /// Takes any block at hand out.
    pub fn pop(&mut self, slab: &mut Slab, small: bool) -> Option<Id> {
        let [large, of_small] = &mut self.blocks.as_mut()?.exact;
        (if small { of_small } else { large }).pop(slab)
    }

    /// Bytes of the largest free block of one part of the addresses; 0 if there is none.
    pub fn largest(&self, slab: &mut Slab, small: bool) -> u64 {
        let Some(blocks) = &self.blocks else { return 0 };
        let ([large, of_small], [bins_large, bins_small]) = (&blocks.exact, &blocks.bins);
        let (exact, bins) = if small {
            (of_small, bins_small)
        } else {
            (large, bins_large)
        };
        exact.largest().max(bins.largest(slab))
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

    /// Events are void, but the work before them may go on. Returns them.
    pub fn void(&mut self) -> impl Iterator<Item = E> + use<E> {
        std::mem::take(&mut self.closed)
            .into_iter()
            .map(|(_, event)| event)
    }

    /// All work is over, and events are void. Returns them.
    pub fn forget(&mut self) -> impl Iterator<Item = E> + use<E> {
        self.complete = self.open;
        self.open += 1;
        self.joined = false;
        self.void()
    }
}
