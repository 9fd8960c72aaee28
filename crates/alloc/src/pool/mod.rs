//! Pools of device memory, for the stream-ordered family and for `cudaMalloc`.
//!
//! A stream may reuse at once the memory that it freed. Other streams may use it when the work
//! before the free is complete, or after they were made to wait for this work. Memory freed on no
//! particular stream waits for all work in its context.
//!
//! [`Pool`] has one lock, and does not hold it during calls to its driver. Threads that contend for
//! the lock use thread caches (`thread_caches.rs`).
//!
//! - `state.rs` decides which free memory answers a request; `serve.rs` and `miss.rs` carry it out.
//! - `stream_queues.rs` has the freed blocks of each stream.
//! - `fences.rs` queries which work is complete.
//! - `merging.rs` merges free blocks.
//! - `backing/` gets memory from the driver and gives it back: `pages.rs` and `mapping.rs` in
//!   pieces that move, `whole.rs` in driver allocations.

mod adjoining;
mod backing;
mod bins;
mod bits;
mod block;
mod contexts;
mod counts;
mod ended_queues;
mod exact_fit;
mod fences;
mod manage;
mod merging;
mod miss;
mod misses;
mod serve;
mod state;
mod stream_queue;
mod stream_queues;
#[cfg(test)]
mod tests;
mod thread_cache;
mod thread_caches;
mod types;
mod warm;

pub use backing::block_pieces::BlockPieces;
pub use contexts::Mark;
pub use serve::Pool;
pub use types::{Backing, LiveBlock, Settings};
