//! Fences tell when the work that was submitted before a free is over.
//!
//! A free joins the open fence. Closing a fence and recording an event (one of a stream, or one in each context
//! concerned) makes the frees before it distinguishable from later ones. As an event covers
//! *all* earlier work, what was recorded for a fence also covers the fences before it.

use crate::mutation::{Mutation, planted};
use std::collections::VecDeque;

/// A timeline of fences with what was recorded for each, as events.
pub(crate) struct Fences<R> {
    open: u64,
    /// Whether a free joined the open fence.
    joined: bool,
    /// Closed fences with what was recorded, oldest first: those that are not known to be complete, and others until
    /// [`Fences::superfluous`] returns them.
    closed: VecDeque<(u64, R)>,
    complete: u64,
}

impl<R: Clone> Fences<R> {
    /// Fences that count on after `floor`, which is complete. The first of all is number 1.
    pub fn new(floor: u64) -> Self {
        Fences {
            open: floor + 1,
            joined: false,
            closed: VecDeque::new(),
            complete: floor,
        }
    }

    /// The fence that a free joins now.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Every fence up to this one is known to be complete.
    #[inline]
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// A free joins the open fence. Returns its number, and whether it is the first to do so.
    #[inline]
    pub fn join(&mut self) -> (u64, bool) {
        let is_first = !std::mem::replace(&mut self.joined, true);
        let fence = match () {
            () if planted(Mutation::NoFence) => 0,
            () => self.open - u64::from(planted(Mutation::OlderFence)),
        };
        (fence, is_first)
    }

    /// Closes the open fence: later frees belong to the next. Returns its number.
    pub fn close(&mut self) -> u64 {
        let fence = self.open;
        self.open += 1;
        self.joined = false;
        fence
    }

    /// Closes the open fence if a free joined it. Returns the last fence that is closed.
    pub fn close_if_joined(&mut self) -> u64 {
        if planted(Mutation::NoClose) {
            self.joined = false;
            self.open
        } else if self.joined {
            self.close()
        } else {
            self.open - 1
        }
    }

    /// Closes the open fence if a free joined it, before its streams are synchronised. Returns the fence that is complete
    /// then.
    pub fn mark(&mut self) -> u64 {
        match planted(Mutation::OpenMark) {
            true => self.join().0,
            false => self.close_if_joined(),
        }
    }

    /// What was recorded after a fence was closed. Fences may be recorded in another order than they were closed in.
    pub fn recorded(&mut self, fence: u64, record: R) {
        let at = self.closed.partition_point(|(id, _)| *id < fence);
        self.closed.insert(at, (fence, record));
    }

    /// The first recorded fence that covers this one.
    pub fn covering(&self, fence: u64) -> Option<(u64, R)> {
        if planted(Mutation::OrderOlder) {
            return self.first().map(|(_, record)| (fence, record));
        }
        let at = self.closed.partition_point(|(id, _)| *id < fence);
        self.closed.get(at).cloned()
    }

    /// The first recorded fence.
    pub fn first(&self) -> Option<(u64, R)> {
        self.closed.front().cloned()
    }

    /// The last recorded fence, unless it is complete.
    pub fn last(&self) -> Option<(u64, R)> {
        let last = self.closed.back().filter(|(id, _)| *id > self.complete);
        last.cloned()
    }

    /// Whether frees have joined a fence for which nothing was recorded.
    pub fn lacks_record(&self) -> bool {
        let last = self.closed.back().map_or(0, |(id, _)| *id);
        self.joined || last.max(self.complete) + 1 < self.open
    }

    /// All work before the closing of this fence is over.
    pub fn completed(&mut self, fence: u64) {
        self.complete = self.complete.max(fence);
    }

    /// Takes the first record out if it is for a fence up to `upto`.
    pub fn superfluous(&mut self, upto: u64) -> Option<R> {
        let (fence, _) = self.closed.front()?;
        if *fence > upto && !planted(Mutation::RetireEarly) {
            return None;
        }
        self.closed.pop_front().map(|(_, record)| record)
    }

    /// Whether the work before everything that was freed is known to be over.
    pub fn is_complete(&self) -> bool {
        !self.joined && self.complete + 1 >= self.open
    }

    /// As [`Fences::is_complete`], and no record is left.
    pub fn is_over(&self) -> bool {
        self.is_complete() && self.closed.is_empty()
    }

    /// The records are void, but the work before them may go on. Returns them.
    pub fn void(&mut self) -> impl Iterator<Item = R> + use<R> {
        std::mem::take(&mut self.closed)
            .into_iter()
            .map(|(_, record)| record)
    }

    /// All work is over, and the records are void. Returns them.
    pub fn forget(&mut self) -> impl Iterator<Item = R> + use<R> {
        self.complete = self.close();
        self.void()
    }
}

/// The fence after which the work before both is over, of one timeline.
#[inline(always)]
pub(crate) fn later(a: u64, b: u64) -> u64 {
    match planted(Mutation::AbsorbOlder) {
        true => a.min(b),
        false => a.max(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_covers_the_fences_before_it() {
        let mut fences = Fences::new(0);
        assert_eq!(fences.join(), (1, true));
        assert_eq!(fences.join(), (1, false));
        let (silent, a, b) = (fences.close(), fences.close(), fences.close());
        assert_eq!(fences.covering(silent), None);
        fences.recorded(b, 'b');
        fences.recorded(a, 'a');
        assert_eq!(fences.covering(silent), Some((a, 'a')), "in order again");
        assert_eq!(fences.covering(b), Some((b, 'b')));
        assert_eq!(fences.superfluous(silent), None);
        fences.completed(a);
        assert_eq!(fences.superfluous(a), Some('a'));
        assert_eq!(fences.last(), Some((b, 'b')));
        fences.completed(b);
        assert_eq!(fences.last(), None);
        assert!(fences.is_complete() && !fences.is_over());
        assert_eq!(fences.void().collect::<Vec<_>>(), ['b']);
        assert!(fences.is_over());
    }

    #[test]
    fn a_fence_closes_only_if_it_was_joined() {
        let mut fences = Fences::new(4);
        assert_eq!(fences.close_if_joined(), 4);
        assert!(!fences.lacks_record());
        fences.join();
        assert!(fences.lacks_record());
        assert_eq!(fences.close_if_joined(), 5);
        assert!(fences.lacks_record());
        fences.recorded(5, ());
        assert!(!fences.lacks_record());
        assert_eq!(fences.forget().count(), 1);
        assert_eq!((fences.complete(), fences.open()), (6, 7));
    }
}
