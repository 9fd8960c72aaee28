//! The pool of the `cudaMalloc` family: a block belongs to a context, and its free is ordered after everything in it.
//! (Where memory is served in pages, `cudaMalloc` is served by [`crate::stream_pool`] instead.)
//!
//! [`DevicePool`] has one lock and holds it over no call to its [`Device`]. `state.rs` and `miss.rs` decide what to do and
//! know no device; `pool.rs`, `grow.rs` and `give_back.rs` carry it out, with `work.rs`, which records
//! and orders, and `release.rs`, which gives memory back.
//! A block is a driver allocation. `cached_blocks.rs` keeps free blocks, `fences.rs` decides when a block may
//! be handed out again, `thread_cache.rs` serves hits without the lock.

mod access;
mod accounts;
mod arena;
mod block;
mod cached_blocks;
mod contexts;
mod departing;
mod device;
mod fences;
mod give_back;
mod grow;
mod leaving;
mod miss;
#[allow(
    clippy::module_inception,
    reason = "the pool itself, beside what it is made of"
)]
mod pool;
mod release;
mod state;
#[cfg(test)]
mod tests;
mod thread_cache;
mod types;
mod work;

pub use device::Device;
pub use pool::DevicePool;
pub use types::{Found, Gone, Mark, Settings};
