//! Lanes: what one stream has freed, and how far other streams are ordered behind it.
//!
//! A free joins the open fence of its stream's lane. Closing the fence records an event on the stream;
//! work of the stream before the free is over when that event is complete. What was freed on a stream
//! may be used on the same stream at once, on another one when the fence is complete or when that
//! stream was made to wait for it.
//!
//! A lane ends with its stream: what it has goes to the shared lane, where everything is free for
//! everybody, once the work before its last free is over. Its number serves another stream then. The
//! fences of a number count on for ever: one that is remembered of an earlier lane is complete.

use super::bits::Bits;
use super::block::{SHARED, Slab};
use super::mutation::{Mutation, on};
use super::quick::Quick;
use crate::bins::Bins;
use crate::handles::{Context, Stream};
use crate::slab::Id;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Orders of one lane behind others, above which those that are over are forgotten.
const ORDERS: usize = 16;

/// The free blocks of a lane, small and large.
struct Blocks {
    quick: [Quick; 2],
    bins: [Bins; 2],
}

impl Blocks {
    #[cold]
    fn new() -> Box<Self> {
        Box::new(Blocks {
            quick: [Quick::new(), Quick::new()],
            bins: [Bins::new(), Bins::new()],
        })
    }

    #[inline]
    fn bins_mut(&mut self, small: bool) -> &mut Bins {
        let [large, of_small] = &mut self.bins;
        if small { of_small } else { large }
    }

    fn is_empty(&self) -> bool {
        self.quick.iter().all(Quick::is_empty) && self.bins.iter().all(Bins::is_empty)
    }
}

/// One stream's part of a pool.
pub(super) struct Lane<E> {
    /// The stream; `None` where nothing more is freed: it is destroyed.
    pub stream: Option<Stream>,
    pub context: Context,
    /// Whether the stream's later work comes after its earlier work by itself.
    pub ordered: bool,
    /// The stream is gone; the lane ends when its last fence is complete.
    pub ends: bool,
    /// Number of the fence that frees join now, from 1.
    open: u64,
    joined: bool,
    /// Whether the pool knows that there may be free blocks.
    pub holds: bool,
    /// Fences with events that are not known to be complete, oldest first.
    closed: VecDeque<(u64, E)>,
    complete: u64,
    /// Later work of this lane waits for other lanes' fences up to here; for its own where the
    /// stream's work is not ordered by itself.
    after: Vec<(u32, u64)>,
    blocks: Option<Box<Blocks>>,
}

impl<E: Copy> Lane<E> {
    /// A lane whose fences count on after these.
    fn new(floor: u64) -> Self {
        Lane {
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

    fn serve(&mut self, stream: Stream) {
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

    /// Events that nobody needs any more: fences that are complete.
    pub fn superfluous(&mut self) -> Option<E> {
        let (id, event) = *self.closed.front()?;
        (id <= self.complete || on(Mutation::RetireEarly)).then(|| {
            self.closed.pop_front();
            event
        })
    }

    fn is_after(&self, lane: u32, fence: u64) -> bool {
        self.after
            .iter()
            .any(|(other, upto)| *other == lane && fence <= *upto)
    }

    /// Whether the work before all that was freed is over, and no event is left.
    fn is_over(&self) -> bool {
        !self.joined && self.complete + 1 >= self.open && self.closed.is_empty()
    }

    /// Takes a block at hand of exactly this size out.
    #[inline(always)]
    pub fn take(&mut self, slab: &mut Slab, size: u64, small: bool) -> Option<Id> {
        let [large, of_small] = &mut self.blocks.as_mut()?.quick;
        (if small { of_small } else { large }).take(slab, size)
    }

    /// Keeps a block at hand; false if there is no place for it.
    #[inline(always)]
    pub fn keep(&mut self, slab: &mut Slab, id: Id, size: u64, small: bool) -> bool {
        let [large, of_small] = &mut self.blocks.get_or_insert_with(Blocks::new).quick;
        (if small { of_small } else { large }).keep(slab, id, size)
    }

    /// Takes any block at hand out.
    pub fn pop(&mut self, slab: &mut Slab, small: bool) -> Option<Id> {
        let [large, of_small] = &mut self.blocks.as_mut()?.quick;
        (if small { of_small } else { large }).pop(slab)
    }

    /// Bytes of the largest free block of one part of the addresses; 0 if there is none.
    pub fn largest(&self, slab: &mut Slab, small: bool) -> u64 {
        let Some(blocks) = &self.blocks else { return 0 };
        let ([large, of_small], [bins_large, bins_small]) = (&blocks.quick, &blocks.bins);
        let (quick, bins) = if small {
            (of_small, bins_small)
        } else {
            (large, bins_large)
        };
        quick.largest().max(bins.largest(slab))
    }

    /// The free blocks of one part of the addresses, if there may be any.
    #[inline]
    pub fn bins(&self, small: bool) -> Option<&Bins> {
        let [large, of_small] = &self.blocks.as_ref()?.bins;
        Some(if small { of_small } else { large })
    }

    #[inline]
    fn bins_mut(&mut self, small: bool) -> &mut Bins {
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

/// All lanes of a pool.
pub(super) struct Lanes<E> {
    lanes: Vec<Lane<E>>,
    /// The lanes of streams that are there.
    of: FxHashMap<Stream, u32>,
    /// Those of the default streams of threads, by thread.
    of_thread: FxHashMap<u64, Vec<u32>>,
    /// Numbers that serve no stream.
    vacant: Vec<u32>,
    /// The highest fence of the numbers that were given up.
    floor: u64,
    /// The lane that was asked for last.
    recent: u32,
    /// Lanes that may have fences that are not complete.
    pending: Bits,
    /// Lanes that may have free blocks.
    holding: Bits,
}

impl<E: Copy> Lanes<E> {
    pub fn new() -> Self {
        Lanes {
            lanes: vec![Lane::new(0)],
            of: FxHashMap::default(),
            of_thread: FxHashMap::default(),
            vacant: Vec::new(),
            floor: 0,
            recent: SHARED,
            pending: Bits::new(),
            holding: Bits::new(),
        }
    }

    /// No lanes; those to come have later fences than all these.
    pub fn anew(&self) -> Self {
        let opens = self.lanes.iter().map(|lane| lane.open);
        let floor = opens.chain([self.floor]).max().unwrap_or(0);
        Lanes {
            lanes: vec![Lane::new(floor)],
            floor,
            ..Lanes::new()
        }
    }

    #[inline]
    pub fn at(&mut self, lane: u32) -> Option<&mut Lane<E>> {
        self.lanes.get_mut(lane as usize)
    }

    pub fn get(&self, lane: u32) -> Option<&Lane<E>> {
        self.lanes.get(lane as usize)
    }

    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..self.lanes.len() as u32
    }

    /// The first lane from a number on that may have fences that are not complete.
    pub fn pending(&mut self, from: u32) -> Option<u32> {
        let mut from = from;
        loop {
            let number = self.pending.next(from)?;
            match self.lanes.get(number as usize) {
                Some(lane) if lane.ends || !lane.is_over() => return Some(number),
                _ => self.pending.remove(number),
            }
            from = number + 1;
        }
    }

    /// The first lane from a number on that has free blocks.
    pub fn holder(&mut self, from: u32) -> Option<u32> {
        let mut from = from;
        loop {
            let number = self.holding.next(from)?;
            let Some(lane) = self.lanes.get_mut(number as usize) else {
                self.holding.remove(number);
                continue;
            };
            if lane
                .blocks
                .as_ref()
                .is_some_and(|blocks| !blocks.is_empty())
            {
                return Some(number);
            }
            lane.holds = false;
            self.holding.remove(number);
            from = number + 1;
        }
    }

    /// A block joins the open fence of a lane.
    #[inline]
    pub fn join(&mut self, lane: u32) -> u64 {
        let Some(at) = self.lanes.get_mut(lane as usize) else {
            return 0;
        };
        let (fence, is_first) = at.join();
        if is_first {
            self.pending.insert(lane);
        }
        fence
    }

    /// A lane has fences that are not complete.
    #[cold]
    pub fn pends(&mut self, lane: u32) {
        self.pending.insert(lane);
    }

    /// A lane has free blocks.
    pub fn holds(&mut self, lane: u32) {
        if let Some(at) = self.lanes.get_mut(lane as usize) {
            at.holds = true;
            self.holding.insert(lane);
        }
    }

    /// The free blocks of a lane, to which one is added.
    #[inline]
    pub fn bins_mut(&mut self, lane: u32, small: bool) -> Option<&mut Bins> {
        let at = self.lanes.get_mut(lane as usize)?;
        if !at.holds {
            at.holds = true;
            self.holding.insert(lane);
        }
        Some(at.bins_mut(small))
    }

    /// The free blocks of a lane, from which one is taken; `None` if there never was one.
    #[inline]
    pub fn bins_from(&mut self, lane: u32, small: bool) -> Option<&mut Bins> {
        let blocks = self.lanes.get_mut(lane as usize)?.blocks.as_mut()?;
        Some(blocks.bins_mut(small))
    }

    /// Frees the tables of lanes without free blocks: 30 KB of host memory each.
    pub fn shrink(&mut self) {
        for (lane, number) in self.lanes.iter_mut().zip(0..) {
            if lane.blocks.as_ref().is_some_and(|blocks| blocks.is_empty()) {
                lane.blocks = None;
                lane.holds = false;
                self.holding.remove(number);
            }
        }
    }

    /// Whether no other lane than this one has free blocks.
    #[inline]
    pub fn holds_alone(&self, lane: u32) -> bool {
        self.holding.is_within(lane)
    }

    /// The lane of a stream, made if there is none.
    #[inline(always)]
    pub fn of(&mut self, stream: Stream) -> u32 {
        if let Some(lane) = self.lanes.get(self.recent as usize)
            && lane.stream == Some(stream)
        {
            return self.recent;
        }
        self.find(stream)
    }

    fn find(&mut self, stream: Stream) -> u32 {
        self.recent = match self.of.get(&stream) {
            Some(lane) => *lane,
            None => self.make(stream),
        };
        self.recent
    }

    #[cold]
    fn make(&mut self, stream: Stream) -> u32 {
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.lanes.push(Lane::new(self.floor));
            self.lanes.len() as u32 - 1
        });
        if let Some(lane) = self.lanes.get_mut(number as usize) {
            lane.serve(stream);
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

    /// The lane of a stream, if there is one.
    pub fn known(&self, stream: Stream) -> Option<u32> {
        self.of.get(&stream).copied()
    }

    /// The lanes of a thread's default streams.
    pub fn of_thread(&self, thread: u64) -> Vec<u32> {
        self.of_thread.get(&thread).cloned().unwrap_or_default()
    }

    /// The stream of a lane is no more: one with the same handle later is another one.
    pub fn unlist(&mut self, lane: u32) {
        let Some(at) = self.lanes.get_mut(lane as usize) else {
            return;
        };
        let Some(stream) = at.stream.take() else {
            return;
        };
        at.ends = true;
        self.pending.insert(lane);
        self.of.remove(&stream);
        if let Some(of_thread) = self.of_thread.get_mut(&stream.thread) {
            of_thread.retain(|other| *other != lane);
            if of_thread.is_empty() {
                self.of_thread.remove(&stream.thread);
            }
        }
        if self.of.capacity() > 64 && self.of.capacity() / 8 > self.of.len() {
            self.of.shrink_to(2 * self.of.len());
            self.of_thread.shrink_to(2 * self.of_thread.len());
        }
    }

    /// Whether a lane can end: its stream is gone, and so is its work.
    pub fn can_end(&self, lane: u32) -> bool {
        let is_over = |lane: &Lane<E>| lane.is_over() || on(Mutation::EndLaneEarly);
        self.get(lane)
            .is_some_and(|lane| lane.ends && is_over(lane))
    }

    /// A lane ends. It has no blocks any more.
    pub fn end(&mut self, number: u32) {
        let Some(lane) = self.lanes.get_mut(number as usize) else {
            return;
        };
        lane.ends = false;
        lane.holds = false;
        lane.blocks = None;
        if !on(Mutation::KeepOrder) {
            lane.after = Vec::new();
        }
        lane.closed = VecDeque::new();
        self.pending.remove(number);
        self.holding.remove(number);
        self.vacant.push(number);
        if number as usize + 1 == self.lanes.len() {
            self.shorten();
        }
    }

    /// Gives the highest numbers up that serve no stream.
    fn shorten(&mut self) {
        while self.lanes.len() > 1
            && let Some(last) = self.lanes.last()
            && last.stream.is_none()
            && !last.ends
        {
            self.floor = self.floor.max(last.open);
            self.lanes.pop();
        }
        let length = self.lanes.len();
        self.vacant.retain(|number| (*number as usize) < length);
        if self.lanes.capacity() > 64 && self.lanes.capacity() / 8 > length {
            self.lanes.shrink_to(2 * length);
            self.vacant.shrink_to(2 * length);
        }
    }

    /// A lane's later work waits for a fence of another.
    pub fn ordered(&mut self, lane: u32, other: u32, fence: u64) {
        let Some(at) = self.lanes.get_mut(lane as usize) else {
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
        if let Some(at) = self.lanes.get_mut(lane as usize) {
            at.after = after;
        }
    }

    /// Whether work before a fence is known to be over.
    #[inline]
    pub fn is_complete(&self, lane: u32, fence: u64) -> bool {
        // A lane that is no more was over when it ended.
        self.get(lane).is_none_or(|lane| fence <= lane.complete)
    }

    /// Whether later work of `lane` comes after the fence of another.
    #[inline]
    pub fn is_usable(&self, lane: u32, other: u32, fence: u64) -> bool {
        let Some(own) = self.get(lane) else {
            return false;
        };
        let by_itself = lane == other && own.ordered;
        by_itself
            || on(Mutation::UseUnordered)
            || own.is_after(other, fence)
            || self.is_complete(other, fence)
    }
}
