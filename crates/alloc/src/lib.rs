//! The caching allocator: pools of device memory. It makes no CUDA call itself and can be tested
//! without a GPU.
//!
//! - [`pool`] serves `cudaMalloc` and stream-ordered requests. A freed block may be reused at once
//!   by the stream that freed it, and by other streams after its work. A block of `cudaMalloc` is
//!   for all streams of its context. Memory is in pages, or in whole driver allocations.
//! - [`elastic`] serves an allocator above this one that announces its tensors. The allocator's
//!   segments have memory only where they are used.
//! - [`gate`] keeps calls out of contexts that end.
//!
//! A pool calls the driver through the trait [`Driver`]. The shim implements it with CUDA. `gpushim
//! replay` and the tests implement it with simulations:
//!
//! ```
//! use gpushim_alloc::pool::{Backing, Settings, Pool};
//! use gpushim_alloc::{Context, Driver, Home, PoolId, Source, Stream};
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! /// Hands out addresses, and has no work to wait for.
//! struct Idle(AtomicU64);
//!
//! impl Driver for Idle {
//!     type Error = ();
//!     type Event = ();
//!     type Admission = ();
//!     const OUT_OF_MEMORY: () = ();
//!     fn allocate(&self, _: Home, bytes: u64) -> Result<u64, ()> {
//!         Ok(self.0.fetch_add(bytes, Ordering::Relaxed))
//!     }
//!     fn is_complete(&self, _: ()) -> Result<bool, ()> {
//!         Ok(true)
//!     }
//! #   fn is_out_of_memory(_: ()) -> bool { true }
//! #   fn reserve(&self, _: i32, _: u64) -> Result<u64, ()> { Err(()) }
//! #   fn create(&self, _: i32, _: u64) -> Result<u64, ()> { Err(()) }
//! #   fn destroy(&self, _: i32, _: u64, _: u64) {}
//! #   fn map(&self, _: u64, _: u64, _: u64) -> Result<(), ()> { Err(()) }
//! #   fn allow(&self, _: u64, _: u64, _: &[i32]) -> Result<(), ()> { Err(()) }
//! #   fn forbid(&self, _: u64, _: u64, _: &[i32]) -> Result<(), ()> { Err(()) }
//! #   fn unmap(&self, _: u64, _: u64) -> Result<(), ()> { Err(()) }
//! #   fn release(&self, _: Home, _: u64, _: u64) -> Result<(), ()> { Ok(()) }
//! #   fn record(&self, _: Stream) -> Result<(), ()> { Ok(()) }
//! #   fn order(&self, _: Stream, _: ()) -> Result<(), ()> { Ok(()) }
//! #   fn wait(&self, _: ()) -> Result<(), ()> { Ok(()) }
//! #   fn retire(&self, _: ()) {}
//! #   fn admit(&self, _: i32, _: u64) -> Option<()> { Some(()) }
//! #   fn make_room(&self, _: PoolId, _: bool) -> bool { false }
//! }
//!
//! let context = Context(1);
//! let backing = Backing::Whole(Home { context, born: 0 });
//! let pool = Pool::new(0, Settings { backing, ..Settings::default() });
//! let (driver, stream) = (Idle(AtomicU64::new(1 << 40)), Stream::all_of(context));
//! let first = pool.allocate(&driver, stream, 1 << 20).expect("there is memory");
//! assert_eq!(first.source, Source::Grown);
//! pool.free(stream, first.address, |_| ()).expect("it is live");
//! let second = pool.allocate(&driver, stream, 1 << 20).expect("it is cached");
//! assert_eq!(second.address, first.address);
//! assert_eq!(pool.stats().reserved, first.size);
//! ```

mod captures;
mod driver;
pub mod elastic;
mod fences;
pub mod gate;
mod handles;
mod lock;
mod mutation;
mod per_thread;
mod policy;
pub mod pool;
mod rules;
#[cfg(test)]
mod sim;
mod size_class;
mod slab;
mod stats;
mod types;

pub use driver::{Driver, Home, PoolId};
pub use handles::{Address, Context, Stream};
pub use policy::{Policy, Reuse, TICKS_TO_DECAY};
pub use stats::Stats;
pub use types::{FreeError, Freed, Grant, Source, Stamp, UNNUMBERED};
