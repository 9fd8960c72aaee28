//! Threads that look for memory or free it. A request that finds no memory meanwhile is tried
//! again.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of threads that look for memory or free it now.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// Number of times that a thread began to.
static BEGUN: AtomicUsize = AtomicUsize::new(0);

/// Mark of a thread that looks for memory or frees it, until dropped.
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

    /// Number of times that a thread began to look for memory or to free it.
    pub fn begun() -> usize {
        BEGUN.load(Ordering::Acquire)
    }

    /// True if no other thread has looked for memory or freed it since this value was made.
    pub fn was_alone(&self) -> bool {
        self.is_first && Active::begun() == self.begun
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        ACTIVE.fetch_sub(1, Ordering::AcqRel);
    }
}
