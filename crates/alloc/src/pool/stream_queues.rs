//! Stream queues: the freed blocks of each stream, and its order behind other streams.
//!
//! A free joins the open fence of its stream's queue. Closing the fence records an event on the
//! stream. When the event is complete, the stream's work before the free is complete. A block may
//! be reused at once on the stream that freed it. Another stream may use it when the fence is
//! complete, or after it was made to wait for the fence.
//!
//! A queue ends with its stream, once the work before its last free is complete. Its blocks then
//! move to the shared queue, where they are free for all streams, and its number serves another
//! stream. Fences are never numbered anew: a remembered fence of an earlier queue with this number
//! is complete.

use super::bins::Bins;
use super::bits::Bits;
use super::block::SHARED;
use super::stream_queue::StreamQueue;
use crate::handles::Stream;
use crate::rules;
use rustc_hash::FxHashMap;

/// Number of entries in [`StreamQueue::after`] from which complete ones are dropped.
const ORDERS: usize = 16;

/// All stream queues of a pool.
pub(super) struct StreamQueues<E> {
    queues: Vec<StreamQueue<E>>,
    /// Numbers of the queues, by existing stream.
    of: FxHashMap<Stream, u32>,
    /// Numbers of the queues of the threads' default streams, by thread.
    of_thread: FxHashMap<u64, Vec<u32>>,
    /// Queue numbers that serve no stream.
    vacant: Vec<u32>,
    /// Highest fence of the queue numbers that were dropped.
    floor: u64,
    /// Queue that was requested last.
    recent: u32,
    /// Queues that may have incomplete fences.
    pending: Bits,
    /// Queues that may have free blocks.
    holding: Bits,
}

impl<E: Copy> StreamQueues<E> {
    pub fn new() -> Self {
        StreamQueues {
            queues: vec![StreamQueue::new(0)],
            of: FxHashMap::default(),
            of_thread: FxHashMap::default(),
            vacant: Vec::new(),
            floor: 0,
            recent: SHARED,
            pending: Bits::new(),
            holding: Bits::new(),
        }
    }

    /// Makes an empty set of queues, whose fences are later than all fences here.
    pub fn anew(&self) -> Self {
        let opens = self.queues.iter().map(|queue| queue.fences.open());
        let floor = opens.chain([self.floor]).max().unwrap_or(0);
        StreamQueues {
            queues: vec![StreamQueue::new(floor)],
            floor,
            ..StreamQueues::new()
        }
    }

    #[inline]
    pub fn at(&mut self, queue: u32) -> Option<&mut StreamQueue<E>> {
        self.queues.get_mut(queue as usize)
    }

    pub fn get(&self, queue: u32) -> Option<&StreamQueue<E>> {
        self.queues.get(queue as usize)
    }

    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..self.queues.len() as u32
    }

    /// First queue from a number on that may have incomplete fences.
    pub fn pending(&mut self, from: u32) -> Option<u32> {
        let mut from = from;
        loop {
            let number = self.pending.next(from)?;
            match self.queues.get(number as usize) {
                Some(queue) if queue.ends || !queue.fences.is_over() => return Some(number),
                _ => self.pending.remove(number),
            }
            from = number + 1;
        }
    }

    /// First queue from a number on that has free blocks.
    pub fn holder(&mut self, from: u32) -> Option<u32> {
        let mut from = from;
        loop {
            let number = self.holding.next(from)?;
            let Some(queue) = self.queues.get_mut(number as usize) else {
                self.holding.remove(number);
                continue;
            };
            if queue
                .blocks
                .as_ref()
                .is_some_and(|blocks| !blocks.is_empty())
            {
                return Some(number);
            }
            queue.holds = false;
            self.holding.remove(number);
            from = number + 1;
        }
    }

    /// Joins the open fence of a queue with a block. Returns the fence.
    #[inline]
    pub fn join(&mut self, queue: u32) -> u64 {
        let Some(at) = self.queues.get_mut(queue as usize) else {
            return 0;
        };
        let (fence, is_first) = at.fences.join();
        if is_first {
            self.pending.insert(queue);
        }
        fence
    }

    /// Records that a queue has incomplete fences.
    #[cold]
    pub fn pends(&mut self, queue: u32) {
        self.pending.insert(queue);
    }

    /// Records that a queue has free blocks.
    pub fn holds(&mut self, queue: u32) {
        if let Some(at) = self.queues.get_mut(queue as usize) {
            at.holds = true;
            self.holding.insert(queue);
        }
    }

    /// Returns the bins of a queue, for a block to be added.
    #[inline]
    pub fn bins_mut(&mut self, queue: u32, small: bool) -> Option<&mut Bins> {
        let at = self.queues.get_mut(queue as usize)?;
        if !at.holds {
            at.holds = true;
            self.holding.insert(queue);
        }
        Some(at.bins_mut(small))
    }

    /// Returns the bins of a queue, for a block to be taken out. `None` if there never was one.
    #[inline]
    pub fn bins_from(&mut self, queue: u32, small: bool) -> Option<&mut Bins> {
        let blocks = self.queues.get_mut(queue as usize)?.blocks.as_mut()?;
        Some(blocks.bins_mut(small))
    }

    /// Frees the tables of queues without free blocks: 30 KB of host memory each.
    pub fn shrink(&mut self) {
        for (queue, number) in self.queues.iter_mut().zip(0..) {
            if queue
                .blocks
                .as_ref()
                .is_some_and(|blocks| blocks.is_empty())
            {
                queue.blocks = None;
                queue.holds = false;
                self.holding.remove(number);
            }
        }
    }

    /// True if no other queue than this one has free blocks. May be false although none has.
    #[inline]
    pub fn holds_alone(&self, queue: u32) -> bool {
        self.holding.is_within(queue)
    }

    /// Returns the queue of a stream, and makes it if there is none.
    #[inline(always)]
    pub fn of(&mut self, stream: Stream) -> u32 {
        if let Some(queue) = self.queues.get(self.recent as usize)
            && queue.stream == Some(stream)
        {
            return self.recent;
        }
        self.find(stream)
    }

    fn find(&mut self, stream: Stream) -> u32 {
        self.recent = match self.of.get(&stream) {
            Some(queue) => *queue,
            None => self.make(stream),
        };
        self.recent
    }

    #[cold]
    fn make(&mut self, stream: Stream) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.queues.push(StreamQueue::new(self.floor));
            self.queues.len() as u32 - 1
        });
        if let Some(queue) = self.queues.get_mut(number as usize) {
            queue.serve(stream);
        }
        self.of.insert(stream, number);
        if stream.handle == Stream::PER_THREAD {
            self.of_thread
                .entry(stream.thread)
                .or_default()
                .push(number);
        }
        number
    }

    /// Returns the queue of a stream, if there is one.
    pub fn known(&self, stream: Stream) -> Option<u32> {
        self.of.get(&stream).copied()
    }

    /// Returns the queues of a thread's default streams.
    pub fn of_thread(&self, thread: u64) -> Vec<u32> {
        self.of_thread.get(&thread).cloned().unwrap_or_default()
    }

    /// Takes the stream from a queue, because it is destroyed. A later stream with the same handle
    /// is another one.
    pub fn unlist(&mut self, queue: u32) {
        let Some(at) = self.queues.get_mut(queue as usize) else {
            return;
        };
        let Some(stream) = at.stream.take() else {
            return;
        };
        at.ends = true;
        self.pending.insert(queue);
        self.of.remove(&stream);
        if let Some(of_thread) = self.of_thread.get_mut(&stream.thread) {
            of_thread.retain(|other| *other != queue);
            if of_thread.is_empty() {
                self.of_thread.remove(&stream.thread);
            }
        }
        if self.of.capacity() > 64 && self.of.capacity() / 8 > self.of.len() {
            self.of.shrink_to(2 * self.of.len());
            self.of_thread.shrink_to(2 * self.of_thread.len());
        }
    }

    /// True if a queue can end: it has neither a stream nor incomplete work.
    pub fn can_end(&self, queue: u32) -> bool {
        self.get(queue)
            .is_some_and(|queue| queue.ends && rules::may_end(queue.fences.is_over()))
    }

    /// Ends a queue, which has no blocks any more.
    pub fn end(&mut self, number: u32) {
        let Some(queue) = self.queues.get_mut(number as usize) else {
            return;
        };
        queue.ends = false;
        queue.holds = false;
        queue.blocks = None;
        if rules::order_ends_with_queue() {
            queue.after = Vec::new();
        }
        drop(queue.fences.void());
        self.pending.remove(number);
        self.holding.remove(number);
        self.vacant.push(number);
        if number as usize + 1 == self.queues.len() {
            self.shorten();
        }
    }

    /// Drops the highest queue numbers that serve no stream.
    fn shorten(&mut self) {
        while self.queues.len() > 1
            && let Some(last) = self.queues.last()
            && last.stream.is_none()
            && !last.ends
        {
            self.floor = self.floor.max(last.fences.open());
            self.queues.pop();
        }
        let length = self.queues.len();
        self.vacant.retain(|number| (*number as usize) < length);
        if self.queues.capacity() > 64 && self.queues.capacity() / 8 > length {
            self.queues.shrink_to(2 * length);
            self.vacant.shrink_to(2 * length);
        }
    }

    /// Records that a queue's later work waits for a fence of another.
    pub fn ordered(&mut self, queue: u32, other: u32, fence: u64) {
        let Some(at) = self.queues.get_mut(queue as usize) else {
            return;
        };
        let mut after = std::mem::take(&mut at.after);
        if after.len() >= ORDERS {
            after.retain(|(other, upto)| !self.is_complete(*other, *upto));
        }
        match after.iter_mut().find(|(of, _)| *of == other) {
            Some((_, upto)) => *upto = fence.max(*upto),
            None => after.push((other, fence)),
        }
        if let Some(at) = self.queues.get_mut(queue as usize) {
            at.after = after;
        }
    }

    /// True if the work before a fence is known to be complete.
    #[inline]
    pub fn is_complete(&self, queue: u32, fence: u64) -> bool {
        // A queue that no longer exists was complete when it ended.
        self.get(queue)
            .is_none_or(|queue| fence <= queue.fences.complete())
    }

    /// True if later work of `queue` comes after a fence of the queue `other`.
    #[inline]
    pub fn is_usable(&self, queue: u32, other: u32, fence: u64) -> bool {
        let Some(own) = self.get(queue) else {
            return false;
        };
        let by_itself = queue == other && own.ordered;
        by_itself || rules::may_use(own.is_after(other, fence) || self.is_complete(other, fence))
    }
}
