//! Pools of device memory, for the stream-ordered family and for `cudaMalloc`.
//!
//! A stream may have again at once what was freed on it. Other streams get it when the work before the free is complete,
//! or after they were made to wait for it. Memory that was freed on no stream in particular waits for everything in its
//! context.
//!
//! [`Pool`] has one lock and holds it over no call to its driver. Threads that contend for it have thread caches
//! (`thread_caches.rs`).
//!
//! - `state.rs` decides which free memory answers a request; `serve.rs` and `miss.rs` carry it out.
//! - `stream_queues.rs` has what each stream has freed, `fences.rs` finds out what is complete, and `merging.rs` joins free
//!   blocks.
//! - `backing/` gets memory from the driver and gives it back: `pages.rs` and `mapping.rs` in pieces that move, `whole.rs` as
//!   driver allocations.

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
