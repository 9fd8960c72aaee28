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
//! - `waits.rs` queries which work is complete.
//! - `merging.rs` merges free blocks.
//! - `backing/` gets memory from the driver and gives it back: `pages.rs` and `mapping.rs` in
//!   pieces that move, `whole.rs` in driver allocations.

mod adjacent;
mod backing;
mod bins;
mod bits;
mod block;
mod ended_queues;
mod exact_fit;
mod merging;
mod miss;
mod miss_state;
mod notices;
mod prefetch;
mod queue_count;
mod serve;
mod state;
mod stream_queue;
mod stream_queues;
#[cfg(test)]
mod tests;
mod thread_cache;
mod thread_caches;
mod types;
mod upkeep;
mod waits;

pub use backing::block_pieces::BlockPieces;
pub use notices::Mark;
pub use serve::Pool;
pub use types::{Backing, LiveBlock, Settings};
