//! The caching allocator: pools of device memory. It makes no CUDA call itself and can be tested without a GPU.
//!
//! - [`device_pool`] serves the `cudaMalloc` family: a block belongs to a context, and a freed block is handed out again
//!   after everything that was submitted to that context before the free.
//! - [`stream_pool`] serves the stream-ordered family, and the `cudaMalloc` family where memory is served in pages: a freed
//!   block is handed out again to the stream that freed it at once, and to others after its work.
//! - [`elastic`] serves an allocator above us that announces what it hands out: its segments have memory only where they are used.
//! - [`gate`] keeps calls out of contexts that end.
//!
//! A pool calls the driver through a trait, [`device_pool::Device`] or [`stream_pool::Driver`]. The shim implements it with
//! CUDA, `gpushim replay` and the tests with simulations:
//!
//! ```
//! use gpushim_alloc::device_pool::{Device, DevicePool, Settings};
//! use gpushim_alloc::{Context, Source};
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! /// Hands out addresses, and has no work to wait for.
//! struct Idle(AtomicU64);
//!
//! impl Device for Idle {
//!     type Error = ();
//!     type Event = ();
//!     const OUT_OF_MEMORY: () = ();
//! #   fn is_out_of_memory(_: ()) -> bool { true }
//! #   fn ordinal(&self, _: Context) -> Result<i32, ()> { Ok(0) }
//!     fn allocate(&self, _: Context, bytes: u64) -> Result<u64, ()> {
//!         Ok(self.0.fetch_add(bytes, Ordering::Relaxed))
//!     }
//! #   fn release(&self, _: Context, _: u64, _: u64, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn record(&self, _: Context) -> Result<Option<()>, ()> { Ok(Some(())) }
//! #   fn order(&self, _: Context, _: ()) -> Result<(), ()> { Ok(()) }
//!     fn is_complete(&self, _: ()) -> Result<bool, ()> {
//!         Ok(true)
//!     }
//! #   fn wait(&self, _: ()) -> Result<(), ()> { Ok(()) }
//! #   fn retire(&self, _: ()) {}
//! #   fn synchronize(&self, _: Context) -> Result<(), ()> { Ok(()) }
//! #   fn memory_info(&self, _: Context) -> Result<(u64, u64), ()> { Ok((1 << 36, 1 << 36)) }
//! }
//!
//! let pool = DevicePool::new(Idle(AtomicU64::new(1 << 40)), Settings::default());
//! let first = pool.allocate(Context(1), 1 << 20).expect("there is memory");
//! assert_eq!(first.source, Source::Grown);
//! pool.free(first.address, |_| ()).expect("it is live");
//! let second = pool.allocate(Context(1), 1 << 20).expect("it is cached");
//! assert_eq!(second.address, first.address);
//! assert_eq!(pool.stats(Some(0)).reserved, first.size);
//! ```

mod captures;
pub mod device_pool;
pub mod elastic;
mod fences;
mod few;
pub mod gate;
mod handles;
mod lock;
mod mutation;
mod per_thread;
mod policy;
mod rules;
#[cfg(test)]
mod sim;
mod size_class;
mod slab;
mod stats;
pub mod stream_pool;
mod types;

pub use handles::{Address, Context, Stream};
pub use policy::{Policy, Reuse, TICKS_TO_DECAY};
pub use stats::Stats;
pub use types::{FreeError, Freed, Grant, Source, Stamp, UNNUMBERED};
