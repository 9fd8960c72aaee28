//! Threads that look for memory or give it back: others that find none meanwhile ask again.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads at it.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// Number of times that a thread began.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// A thread looks for memory or gives it back, until dropped.
#[must_use]
pub struct Active {
    begun: usize,
    is_first: bool,
}

impl Active {
    /// Counts from this call until the value is dropped.
    pub fn begin() -> Active {
        let is_first = ACTIVE.fetch_add(1, Ordering::AcqRel) == 0;
        let begun = BEGUN.fetch_add(1, Ordering::AcqRel) + 1;
        Active { begun, is_first }
    }

    /// Number of times that a thread began.
    pub fn begun() -> usize {
        BEGUN.load(Ordering::Acquire)
    }

    /// True if no other thread has looked for memory or given it back since.
    pub fn was_alone(&self) -> bool {
        self.is_first && Active::begun() == self.begun
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        ACTIVE.fetch_sub(1, Ordering::AcqRel);
    }
}
