//! Stream-ordered pools: the allocator behind `cuMemAllocAsync`.
//!
//! What one stream frees it may have again at once; other streams get it when the work before the free
//! is over, or after they were made to wait for it. `state.rs` decides, `plan.rs` says where new memory
//! goes and where it comes from (`course.rs`, where that was decided beforehand), `pool.rs` carries it out over a [`Driver`]; `lanes.rs` knows streams.

mod bits;
mod block;
mod books;
mod contexts;
mod course;
mod driver;
mod fences;
mod lanes;
mod lock;
mod manage;
mod mutation;
mod plan;
mod pool;
mod quick;
#[cfg(test)]
mod sim;
mod space;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod types;

pub use contexts::Marks;
pub use course::{Left, Progress};
pub use driver::Driver;
pub use lanes::Stream;
pub use pool::MemPool;
pub use stats::Stats;
pub use types::{Found, FreeError, Freed, Grant, Settings};

/// Where the memory of a pool comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Layout {
    /// Physical memory mapped into one reserved range of addresses, moved where it is needed.
    #[default]
    Pages,
    /// Large driver allocations, which are split and merged.
    Segments,
    /// A driver allocation for each block.
    Whole,
    /// A driver allocation for each block, of a power-of-two size.
    Bins,
}

impl Layout {
    /// Whether blocks are split and merged.
    fn splits(self) -> bool {
        matches!(self, Layout::Pages | Layout::Segments)
    }

    /// Bytes of the largest block that may serve a request.
    fn slack(self, need: u64) -> u64 {
        match self {
            Layout::Pages | Layout::Segments => u64::MAX,
            Layout::Whole => need.saturating_add(need / 8),
            Layout::Bins => need,
        }
    }
}
