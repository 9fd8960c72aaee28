//! Lanes: what one stream has freed, and how far other streams are ordered behind it.
//!
//! A free joins the open fence of its stream's lane. Closing the fence records an event on the stream;
//! work of the stream before the free is over when that event is complete. What was freed on a stream
//! may be used on the same stream at once, on another one when the fence is complete or when that
//! stream was made to wait for it.

use super::mutation::{Mutation, on};
use super::quick::Quick;
use crate::pool::Context;
use crate::pool::bins::Bins;
use std::collections::VecDeque;

/// A stream, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The context that it belongs to.
    pub context: Context,
    /// The driver's handle; [`Stream::LEGACY`], [`Stream::PER_THREAD`] or [`Stream::EVERY`].
    pub handle: u64,
    /// The thread whose default stream it is, for [`Stream::PER_THREAD`]; else 0. As wide as the others:
    /// copying it would stall on a narrower one.
    pub thread: u64,
}

impl Stream {
    /// `CU_STREAM_LEGACY`.
    pub const LEGACY: u64 = 1;
    /// `CU_STREAM_PER_THREAD`.
    pub const PER_THREAD: u64 = 2;
    /// No stream in particular: everything that was submitted to the context so far.
    pub const EVERY: u64 = u64::MAX;

    /// Whether later work of the stream comes after its earlier work by itself.
    pub fn is_ordered(&self) -> bool {
        self.handle != Self::EVERY
    }
}

/// One stream's part of a pool.
pub(super) struct Lane<E> {
    /// The stream; `None` once it is destroyed, until its last fence is complete.
    pub stream: Option<Stream>,
    pub context: Context,
    /// Whether the stream's later work comes after its earlier work by itself.
    pub ordered: bool,
    /// Number of the fence that frees join now, from 1.
    open: u64,
    joined: bool,
    /// Fences with events that are not known to be complete, oldest first.
    closed: VecDeque<(u64, E)>,
    complete: u64,
    /// Later work of this lane waits for other lanes' fences up to here; for its own where the
    /// stream's work is not ordered by itself.
    after: Vec<(u32, u64)>,
    /// Blocks at hand, small and large.
    quick: [Quick; 2],
    pub small: Bins,
    pub large: Bins,
}

impl<E: Copy> Lane<E> {
    fn new(stream: Stream) -> Self {
        Lane {
            stream: Some(stream),
            context: stream.context,
            ordered: stream.is_ordered(),
            open: 1,
            joined: false,
            closed: VecDeque::new(),
            complete: 0,
            after: Vec::new(),
            quick: [Quick::new(), Quick::new()],
            small: Bins::new(),
            large: Bins::new(),
        }
    }

    /// The fence that a free joins.
    #[inline]
    pub fn join(&mut self) -> u64 {
        self.joined = true;
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

    /// This lane's later work waits for a fence of another.
    pub fn ordered(&mut self, lane: u32, fence: u64) {
        match self.after.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, upto)) => *upto = fence.max(*upto),
            None => self.after.push((lane, fence)),
        }
    }

    /// What this lane's later work waits for is not what it was.
    pub fn forget_order(&mut self) {
        self.after.clear();
    }

    fn is_after(&self, lane: u32, fence: u64) -> bool {
        self.after
            .iter()
            .any(|(other, upto)| *other == lane && fence <= *upto)
    }

    /// The blocks at hand of one part of the addresses.
    #[inline(always)]
    pub fn quick(&mut self, small: bool) -> &mut Quick {
        let [of_small, of_large] = &mut self.quick;
        if small { of_small } else { of_large }
    }

    /// The free blocks of one part of the addresses.
    #[inline]
    pub fn bins(&mut self, small: bool) -> &mut Bins {
        if small {
            &mut self.small
        } else {
            &mut self.large
        }
    }

    /// All events, of a context that has ended.
    pub fn forget(&mut self) -> impl Iterator<Item = E> {
        self.complete = self.open;
        self.open += 1;
        self.joined = false;
        self.stream = None;
        std::mem::take(&mut self.closed)
            .into_iter()
            .map(|(_, event)| event)
    }
}

/// All lanes of a pool.
pub(super) struct Lanes<E> {
    lanes: Vec<Lane<E>>,
    /// The lane that was asked for last.
    recent: u32,
}

impl<E: Copy> Lanes<E> {
    pub fn new() -> Self {
        Lanes {
            lanes: Vec::new(),
            recent: 0,
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
        let found = self.known(stream).or_else(|| self.again(stream));
        self.recent = found.unwrap_or_else(|| {
            self.lanes.push(Lane::new(stream));
            self.lanes.len() as u32 - 1
        });
        self.recent
    }

    /// A lane whose stream is gone and whose work is over serves a new one: what was freed there is
    /// complete, and its fences count on. It stays with its context, because quarantined blocks do.
    fn again(&mut self, stream: Stream) -> Option<u32> {
        let over = |lane: &Lane<E>| {
            let is_over = !lane.joined && lane.complete + 1 >= lane.open;
            let is_near = lane.context == stream.context || on(Mutation::ReuseLaneElsewhere);
            lane.stream.is_none() && is_near && (is_over || on(Mutation::ReuseLaneEarly))
        };
        let at = self.lanes.iter().position(over)?;
        let lane = self.lanes.get_mut(at)?;
        lane.stream = Some(stream);
        lane.context = stream.context;
        lane.ordered = stream.is_ordered();
        if !on(Mutation::KeepOrder) {
            lane.after.clear();
        }
        Some(at as u32)
    }

    /// The lane of a stream, if there is one.
    pub fn known(&self, stream: Stream) -> Option<u32> {
        let at = |lane: &Lane<E>| lane.stream == Some(stream);
        self.lanes.iter().position(at).map(|at| at as u32)
    }

    /// Whether work before a fence is known to be over.
    #[inline]
    pub fn is_complete(&self, lane: u32, fence: u64) -> bool {
        self.get(lane).is_some_and(|lane| fence <= lane.complete)
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
