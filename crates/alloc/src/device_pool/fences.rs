//! Fences of one arena: an event in each context whose work may reach the arena's blocks. A fence is *ready* when it is
//! complete, or when later work of all those contexts was ordered after it.

use crate::few::Few;
use crate::handles::Context;
use crate::mutation::{Mutation, planted};
use crate::rules;

/// The contexts that a fence covers; mostly one.
pub(super) type Contexts = Few<Context>;

/// The events of one fence, each with its context.
pub(super) type Events<E> = Few<(Context, E)>;

/// The fences of one arena, numbered from 1.
pub(super) struct Fences<E> {
    /// Of the records up to the fence that was ordered last, only the last is kept, for contexts that come later.
    pub timeline: crate::fences::Fences<Events<E>>,
    ordered: u64,
    ready: u64,
}

impl<E: Copy> Fences<E> {
    pub fn new() -> Self {
        Fences {
            timeline: crate::fences::Fences::new(0),
            ordered: 0,
            ready: 0,
        }
    }

    /// Every fence up to this one is ready.
    #[inline]
    pub fn ready(&self) -> u64 {
        self.ready
    }

    /// The fence that a free joins now.
    #[inline]
    pub fn join(&mut self) -> u64 {
        self.timeline.join().0
    }

    /// The events of a closed fence, recorded after it was closed. Returns those that are not needed.
    pub fn recorded(&mut self, fence: u64, events: Events<E>) -> Option<Events<E>> {
        if fence <= self.ready {
            return Some(events);
        }
        self.timeline.recorded(fence, events);
        None
    }

    /// The events of the fence that work was ordered after last, unless it is complete.
    pub fn last_ordered(&self) -> Option<Events<E>> {
        let last = self.timeline.last_upto(self.ordered);
        last.filter(|_| !planted(Mutation::NoCatchUp))
            .map(|(_, events)| events)
    }

    /// All work before the closing of this fence is over. Events that are not needed any more are added to `garbage`.
    pub fn completed(&mut self, fence: u64, garbage: &mut Vec<Events<E>>) {
        self.timeline.completed(fence);
        self.ready = self.ready.max(fence);
        self.drop_upto(self.timeline.complete(), garbage);
    }

    /// Later work of all contexts concerned waits for this fence.
    pub fn ordered(&mut self, fence: u64, garbage: &mut Vec<Events<E>>) {
        self.ordered = self.ordered.max(fence);
        self.ready = self.ready.max(fence);
        if let Some(last) = self.timeline.last_number_upto(self.ordered) {
            self.drop_upto(last - 1, garbage);
        }
    }

    fn drop_upto(&mut self, last: u64, garbage: &mut Vec<Events<E>>) {
        garbage.extend(std::iter::from_fn(|| self.timeline.superfluous(last)));
    }

    /// A context was destroyed: its work is over and its events are void.
    pub fn forget(&mut self, context: Context) {
        for events in self.timeline.records() {
            events.retain(|(of, _)| !rules::events_end_with_context(*of == context));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_fence_makes_the_earlier_ones_ready() {
        let one = |event: u32| {
            let mut events = Events::new();
            events.push((Context(1), event));
            events
        };
        let mut fences = Fences::new();
        assert_eq!(fences.join(), 1);
        let (a, b) = (fences.timeline.close(), fences.timeline.close());
        assert!(fences.recorded(b, one(20)).is_none());
        assert!(fences.recorded(a, one(10)).is_none());
        let mut garbage = Vec::new();
        fences.ordered(b, &mut garbage);
        assert_eq!(garbage.len(), 1, "only the first is superfluous");
        assert_eq!((fences.ready(), fences.timeline.complete()), (b, 0));
        assert!(fences.last_ordered().is_some());
        fences.completed(b, &mut garbage);
        assert_eq!(garbage.len(), 2);
        assert!(fences.last_ordered().is_none());
        let late = fences.recorded(a, one(11));
        assert!(late.is_some(), "late events are handed back");
    }
}
