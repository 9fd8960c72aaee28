//! Stream queues: what one stream has freed, and how far other streams are ordered behind it.
//!
//! A free joins the open fence of its stream's queue. Closing the fence records an event on the stream;
//! work of the stream before the free is over when that event is complete. What was freed on a stream
//! may be used on the same stream at once, on another one when the fence is complete or when that
//! stream was made to wait for it.
//!
//! A queue ends with its stream: what it has goes to the shared queue, where everything is free for
//! everybody, once the work before its last free is over. Its number serves another stream then. The
//! fences of a number count on for ever: one that is remembered of an earlier queue is complete.

use super::bins::Bins;
use super::bits::Bits;
use super::block::SHARED;
use super::stream_queue::StreamQueue;
use crate::handles::Stream;
use crate::rules;
use rustc_hash::FxHashMap;

/// Orders of one queue behind others, above which those that are over are forgotten.
const ORDERS: usize = 16;

/// All queues of a pool.
pub(super) struct StreamQueues<E> {
    queues: Vec<StreamQueue<E>>,
    /// The queues of streams that are there.
    of: FxHashMap<Stream, u32>,
    /// Those of the default streams of threads, by thread.
    of_thread: FxHashMap<u64, Vec<u32>>,
    /// Numbers that serve no stream.
    vacant: Vec<u32>,
    /// The highest fence of the numbers that were given up.
    floor: u64,
    /// The queue that was asked for last.
    recent: u32,
    /// Queues that may have fences that are not complete.
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

    /// No queues; those to come have later fences than all these.
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

    /// The first queue from a number on that may have fences that are not complete.
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

    /// The first queue from a number on that has free blocks.
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

    /// A block joins the open fence of a queue.
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

    /// A queue has fences that are not complete.
    #[cold]
    pub fn pends(&mut self, queue: u32) {
        self.pending.insert(queue);
    }

    /// A queue has free blocks.
    pub fn holds(&mut self, queue: u32) {
        if let Some(at) = self.queues.get_mut(queue as usize) {
            at.holds = true;
            self.holding.insert(queue);
        }
    }

    /// The free blocks of a queue, to which one is added.
    #[inline]
    pub fn bins_mut(&mut self, queue: u32, small: bool) -> Option<&mut Bins> {
        let at = self.queues.get_mut(queue as usize)?;
        if !at.holds {
            at.holds = true;
            self.holding.insert(queue);
        }
        Some(at.bins_mut(small))
    }

    /// The free blocks of a queue, from which one is taken; `None` if there never was one.
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

    /// Whether no other queue than this one has free blocks.
    #[inline]
    pub fn holds_alone(&self, queue: u32) -> bool {
        self.holding.is_within(queue)
    }

    /// The queue of a stream, made if there is none.
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

    /// The queue of a stream, if there is one.
    pub fn known(&self, stream: Stream) -> Option<u32> {
        self.of.get(&stream).copied()
    }

    /// The queues of a thread's default streams.
    pub fn of_thread(&self, thread: u64) -> Vec<u32> {
        self.of_thread.get(&thread).cloned().unwrap_or_default()
    }

    /// The stream of a queue is no more: one with the same handle later is another one.
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

    /// Whether a queue can end: its stream is gone, and so is its work.
    pub fn can_end(&self, queue: u32) -> bool {
        self.get(queue)
            .is_some_and(|queue| queue.ends && rules::may_end(queue.fences.is_over()))
    }

    /// A queue ends. It has no blocks any more.
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

    /// Gives the highest numbers up that serve no stream.
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

    /// A queue's later work waits for a fence of another.
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

    /// Whether work before a fence is known to be over.
    #[inline]
    pub fn is_complete(&self, queue: u32, fence: u64) -> bool {
        // A queue that is no more was over when it ended.
        self.get(queue)
            .is_none_or(|queue| fence <= queue.fences.complete())
    }

    /// Whether later work of `queue` comes after the fence of another.
    #[inline]
    pub fn is_usable(&self, queue: u32, other: u32, fence: u64) -> bool {
        let Some(own) = self.get(queue) else {
            return false;
        };
        let by_itself = queue == other && own.ordered;
        by_itself || rules::may_use(own.is_after(other, fence) || self.is_complete(other, fence))
    }
}
