//! Counters of a pool's tables of streams, for tests that look for leaks.

use super::serve::Pool;
use crate::driver::Driver;

impl<D: Driver> Pool<D> {
    /// Number of stream queues, including queues without a stream.
    pub fn stream_queues(&self) -> usize {
        let mut state = self.state.lock();
        let numbers = state.queues.numbers();
        let kept = numbers.filter(|number| state.queues.at(*number).is_some());
        kept.count()
    }
}
