//! How much a pool knows of streams, for those that watch it grow.

use super::driver::Driver;
use super::pool::MemPool;

impl<D: Driver> MemPool<D> {
    /// Number of stream queues: those of streams that exist, and of others that are still kept.
    pub fn stream_queues(&self) -> usize {
        let mut state = self.state.lock();
        let numbers = state.lanes.numbers();
        let kept = numbers.filter(|number| state.lanes.at(*number).is_some());
        kept.count()
    }
}
