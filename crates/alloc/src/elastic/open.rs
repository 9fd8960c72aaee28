//! The captures that are open, by their numbers.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Captures that have begun and not ended. Its lock is held for no call: a capture may end while segments are at work.
#[derive(Default)]
pub(super) struct OpenCaptures {
    numbers: Mutex<Vec<u64>>,
    count: AtomicUsize,
}

impl OpenCaptures {
    /// True while a stream captures.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// A capture begins. One that is known already counts once.
    pub fn began(&self, number: u64) {
        let mut numbers = self.numbers.lock();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
        self.count.store(numbers.len(), Ordering::Release);
    }

    /// A capture has ended, or did not begin.
    pub fn ended(&self, number: u64) {
        let mut numbers = self.numbers.lock();
        numbers.retain(|open| *open != number);
        self.count.store(numbers.len(), Ordering::Release);
    }
}
