//! Open captures, by their numbers.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Captures that have begun and not ended. No call is made with its lock held: a capture may end
/// while another thread holds the lock of the segments.
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

    /// Notes that a capture begins. A known number is not counted twice.
    pub fn began(&self, number: u64) {
        let mut numbers = self.numbers.lock();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
        self.count.store(numbers.len(), Ordering::Release);
    }

    /// Notes that a capture has ended, or did not begin.
    pub fn ended(&self, number: u64) {
        let mut numbers = self.numbers.lock();
        numbers.retain(|open| *open != number);
        self.count.store(numbers.len(), Ordering::Release);
    }
}
