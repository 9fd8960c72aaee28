//! Fences: when memory that was freed may be handed out again.
//!
//! A free joins the open fence. Closing a fence records an event in every context whose work may
//! reach the arena's blocks; as such an event covers *all* earlier work of its context, a fence
//! that is complete, or that later work has been ordered after, makes every earlier one ready.

use crate::handles::Context;
use std::collections::VecDeque;

/// A few things, the first without the heap.
#[derive(Clone, Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    pub const fn new() -> Self {
        Few {
            first: None,
            rest: Vec::new(),
        }
    }

    pub fn push(&mut self, item: T) {
        match self.first {
            None => self.first = Some(item),
            Some(_) => self.rest.push(item),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.rest.iter())
    }

    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.rest.retain(&keep);
        if self.first.as_ref().is_some_and(|item| !keep(item)) {
            self.first = self.rest.pop();
        }
    }

    /// Whether there is exactly one.
    pub fn is_single(&self) -> bool {
        self.first.is_some() && self.rest.is_empty()
    }
}

/// The events of one fence, each with its context.
pub(super) type Events<E> = Few<(Context, E)>;

struct Closed<E> {
    id: u64,
    events: Events<E>,
}

/// The fences of one arena, numbered from 1.
pub(super) struct Fences<E> {
    open: u64,
    /// Whether a block joined the open fence.
    joined: bool,
    /// Fences with events, by number: those that are not complete as far as is known. Of those
    /// that were ordered only the last is kept, for contexts that come later.
    closed: VecDeque<Closed<E>>,
    ordered: u64,
    complete: u64,
    ready: u64,
}

impl<E: Copy> Fences<E> {
    pub fn new() -> Self {
        Fences {
            open: 1,
            joined: false,
            closed: VecDeque::new(),
            ordered: 0,
            complete: 0,
            ready: 0,
        }
    }

    /// Every fence up to this one is ready.
    #[inline]
    pub fn ready(&self) -> u64 {
        self.ready
    }

    /// Every fence up to this one is complete.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// The fence that a free joins now.
    #[inline]
    pub fn join(&mut self) -> u64 {
        self.joined = true;
        self.open
    }

    /// The number that the next close will give out or exceed.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Whether a block has joined since the last close.
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// Ends the open fence: a point for which events can be recorded, or which can be waited for.
    pub fn close(&mut self) -> u64 {
        let id = self.open;
        self.open = self.open.saturating_add(1);
        self.joined = false;
        id
    }

    /// Ends the open fence if a block has joined it. Returns the last fence that is not open.
    pub fn close_if_joined(&mut self) -> u64 {
        if self.joined {
            self.close()
        } else {
            self.open - 1
        }
    }

    /// The events of a closed fence, recorded after it was closed. What comes back is not needed.
    pub fn recorded(&mut self, id: u64, events: Events<E>) -> Option<Events<E>> {
        if id <= self.ready {
            return Some(events);
        }
        let at = self.closed.partition_point(|fence| fence.id < id);
        self.closed.insert(at, Closed { id, events });
        None
    }

    /// The first fence with events that covers this one.
    pub fn covering(&self, fence: u64) -> Option<(u64, &Events<E>)> {
        let at = self.closed.partition_point(|closed| closed.id < fence);
        self.closed
            .get(at)
            .map(|closed| (closed.id, &closed.events))
    }

    /// The last fence with events.
    pub fn last(&self) -> Option<(u64, &Events<E>)> {
        self.closed.back().map(|closed| (closed.id, &closed.events))
    }

    /// The fence that work was ordered after last, unless it is complete.
    pub fn last_ordered(&self) -> Option<&Events<E>> {
        let at = self
            .closed
            .partition_point(|closed| closed.id <= self.ordered);
        at.checked_sub(1)
            .and_then(|at| self.closed.get(at))
            .map(|closed| &closed.events)
    }

    /// All work before the closing of this fence is done. What is not needed any more is added to
    /// `garbage`.
    pub fn completed(&mut self, id: u64, garbage: &mut Vec<Events<E>>) {
        self.complete = self.complete.max(id);
        self.ready = self.ready.max(id);
        self.drop_upto(self.complete, garbage);
    }

    /// Later work of all contexts concerned waits for this fence.
    pub fn ordered(&mut self, id: u64, garbage: &mut Vec<Events<E>>) {
        self.ordered = self.ordered.max(id);
        self.ready = self.ready.max(id);
        let last = self
            .closed
            .iter()
            .rev()
            .map(|c| c.id)
            .find(|c| *c <= self.ordered)
            .unwrap_or(0);
        self.drop_upto(last.saturating_sub(1), garbage);
    }

    fn drop_upto(&mut self, last: u64, garbage: &mut Vec<Events<E>>) {
        while self.closed.front().is_some_and(|closed| closed.id <= last) {
            garbage.extend(self.closed.pop_front().map(|closed| closed.events));
        }
    }

    /// All events that are kept.
    pub fn into_events(self) -> impl Iterator<Item = Events<E>> {
        self.closed.into_iter().map(|closed| closed.events)
    }

    /// A context was destroyed: its work is over and its events are void.
    pub fn forget(&mut self, context: Context) {
        for closed in &mut self.closed {
            closed.events.retain(|(of, _)| *of != context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(event: u32) -> Events<u32> {
        let mut events = Few::new();
        events.push((Context(1), event));
        events
    }

    #[test]
    fn a_later_fence_makes_the_earlier_ones_ready() {
        let mut fences = Fences::new();
        assert_eq!(fences.join(), 1);
        let a = fences.close();
        let b = fences.close();
        assert!(fences.recorded(b, one(20)).is_none());
        assert!(
            fences.recorded(a, one(10)).is_none(),
            "events may arrive out of order"
        );
        assert_eq!(fences.covering(1).map(|(id, _)| id), Some(a));
        let mut garbage = Vec::new();
        fences.ordered(b, &mut garbage);
        assert_eq!(garbage.len(), 1, "only the first is superfluous");
        assert_eq!(fences.ready(), b);
        assert_eq!(fences.complete(), 0);
        assert!(fences.last_ordered().is_some());
        fences.completed(b, &mut garbage);
        assert_eq!(garbage.len(), 2);
        assert!(fences.last_ordered().is_none());
        assert!(
            fences.recorded(a, one(11)).is_some(),
            "late events are handed back"
        );
    }

    #[test]
    fn a_fence_without_events_is_covered_by_the_next() {
        let mut fences = Fences::new();
        fences.join();
        let silent = fences.close();
        assert!(fences.covering(silent).is_none());
        let next = fences.close();
        fences.recorded(next, one(1));
        assert_eq!(fences.covering(silent).map(|(id, _)| id), Some(next));
    }

    #[test]
    fn few() {
        let mut few = Few::new();
        assert!(!few.is_single());
        few.push(1);
        assert!(few.is_single());
        few.push(2);
        few.push(3);
        few.retain(|n| *n != 1);
        assert_eq!(few.iter().copied().sum::<i32>(), 5);
        few.retain(|_| false);
        assert_eq!(few.iter().count(), 0);
    }
}
