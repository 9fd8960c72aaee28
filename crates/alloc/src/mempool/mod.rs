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
mod follow;
mod lanes;
mod manage;
mod mutation;
mod pieces;
mod plan;
mod pool;
mod quick;
#[cfg(test)]
mod sim;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod types;

pub use contexts::Marks;
pub use course::{Left, Progress};
pub use driver::{Driver, PoolId};
pub use pool::MemPool;
pub use types::{LiveBlock, Settings};
