//! Pools of the stream-ordered family, and of `cudaMalloc` where memory is served in pages.
//!
//! What one stream frees it may have again at once; other streams get it when the work before the free is over, or after
//! they were made to wait for it. What is freed on no stream in particular waits for everything in its context.
//! [`StreamPool`] has one lock and holds it over no call to its [`Driver`]; threads that contend for
//! it have thread caches (`thread_caches.rs`). `state.rs` decides which free memory answers a request,
//! `mapping.rs` where new memory goes and comes from, `piece_size.rs` in how large pieces; `pool.rs`
//! and `miss.rs` carry it out. `stream_queues.rs` knows what each stream has freed, and `fences.rs`
//! when that is over.

mod adjoining;
mod bins;
mod bits;
mod block;
mod block_pieces;
mod contexts;
mod ended_queues;
mod exact_fit;
mod fences;
mod growth;
mod manage;
mod mapping;
mod merging;
mod miss;
mod misses;
mod piece_size;
mod pieces;
mod pool;
mod space;
mod state;
mod stream_queue;
mod stream_queues;
#[cfg(test)]
mod tests;
mod thread_cache;
mod thread_caches;
mod types;
mod warm;
mod whole;

pub use block_pieces::BlockPieces;
pub use contexts::Mark;
pub use pool::StreamPool;
pub use types::{Backing, LiveBlock, Settings};
