//! Fences. A fence is complete when the work that was submitted before its frees is complete.
//!
//! A free joins the open fence. Closing a fence and recording its events separates the frees before
//! it from later ones. There is one event for a stream, or one in each context concerned. As an
//! event covers *all* earlier work, the record of a fence also covers the fences before it.

use crate::mutation::{Mutation, planted};
use std::collections::VecDeque;

/// Fences of one timeline, with the events recorded for them.
pub(crate) struct Fences<R> {
    open: u64,
    /// True if a free joined the open fence.
    joined: bool,
    /// Closed fences with their records, oldest first. Complete fences stay here until
    /// [`Fences::superfluous`] returns their records.
    closed: VecDeque<(u64, R)>,
    complete: u64,
}

impl<R: Clone> Fences<R> {
    /// Makes fences that are numbered from `floor + 1` on. Fence `floor` and those before it are
    /// complete.
    pub fn new(floor: u64) -> Self {
        Fences {
            open: floor + 1,
            joined: false,
            closed: VecDeque::new(),
            complete: floor,
        }
    }

    /// Number of the fence that a free joins now.
    pub fn open(&self) -> u64 {
        self.open
    }

    /// Number of the last fence that is known to be complete, with all before it.
    #[inline]
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// Joins the open fence with a free. Returns its number, and true if this is the first free to
    /// join.
    #[inline]
    pub fn join(&mut self) -> (u64, bool) {
        let is_first = !std::mem::replace(&mut self.joined, true);
        let fence = match () {
            () if planted(Mutation::NoFence) => 0,
            () => self.open - u64::from(planted(Mutation::OlderFence)),
        };
        (fence, is_first)
    }

    /// Closes the open fence: later frees join the next one. Returns its number.
    pub fn close(&mut self) -> u64 {
        let fence = self.open;
        self.open += 1;
        self.joined = false;
        fence
    }

    /// Closes the open fence if a free joined it. Returns the last closed fence.
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

    /// Closes the open fence if a free joined it, before its streams are synchronised. Returns the
    /// fence that is complete then.
    pub fn mark(&mut self) -> u64 {
        match planted(Mutation::OpenMark) {
            true => self.join().0,
            false => self.close_if_joined(),
        }
    }

    /// Adds the record of a closed fence. Fences may be recorded in another order than they were
    /// closed in.
    pub fn recorded(&mut self, fence: u64, record: R) {
        let at = self.closed.partition_point(|(id, _)| *id < fence);
        self.closed.insert(at, (fence, record));
    }

    /// First recorded fence that covers this one.
    pub fn covering(&self, fence: u64) -> Option<(u64, R)> {
        if planted(Mutation::OrderOlder) {
            return self.first().map(|(_, record)| (fence, record));
        }
        let at = self.closed.partition_point(|(id, _)| *id < fence);
        self.closed.get(at).cloned()
    }

    /// First recorded fence, complete or not.
    pub fn first(&self) -> Option<(u64, R)> {
        self.closed.front().cloned()
    }

    /// Last recorded fence, unless it is complete.
    pub fn last(&self) -> Option<(u64, R)> {
        let last = self.closed.back().filter(|(id, _)| *id > self.complete);
        last.cloned()
    }

    /// True if frees have joined a fence that no record covers.
    pub fn lacks_record(&self) -> bool {
        let last = self.closed.back().map_or(0, |(id, _)| *id);
        self.joined || last.max(self.complete) + 1 < self.open
    }

    /// Marks all fences up to this one as complete.
    pub fn completed(&mut self, fence: u64) {
        self.complete = self.complete.max(fence);
    }

    /// Takes the first record out, if it is for a fence up to `upto`.
    pub fn superfluous(&mut self, upto: u64) -> Option<R> {
        let (fence, _) = self.closed.front()?;
        if *fence > upto && !planted(Mutation::RetireEarly) {
            return None;
        }
        self.closed.pop_front().map(|(_, record)| record)
    }

    /// True if all work before every free is known to be complete.
    pub fn is_complete(&self) -> bool {
        !self.joined && self.complete + 1 >= self.open
    }

    /// True if all fences are complete and no record is left.
    pub fn is_over(&self) -> bool {
        self.is_complete() && self.closed.is_empty()
    }

    /// Returns the records, which are void. The work before them may continue.
    pub fn void(&mut self) -> impl Iterator<Item = R> + use<R> {
        std::mem::take(&mut self.closed)
            .into_iter()
            .map(|(_, record)| record)
    }

    /// Marks all fences as complete. Returns the records, which are void.
    pub fn forget(&mut self) -> impl Iterator<Item = R> + use<R> {
        self.complete = self.close();
        self.void()
    }
}

/// Returns the fence of two on one timeline that completes after the work before both.
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
