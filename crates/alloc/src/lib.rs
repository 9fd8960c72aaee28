//! The caching allocator: pools of device memory, without CUDA.
//!
//! [`device_pool`] serves the `cudaMalloc` family: a block belongs to a context, and its free is ordered after everything
//! in it. [`stream_pool`] serves the stream-ordered family, and `cudaMalloc` too where memory is served in pages. Each asks
//! a trait for what the driver does; the shim implements it with the driver, tests and `gpushim replay` with simulations.
//! [`plan`] is a plan of addresses that a pool may follow; [`gate`] keeps calls out of contexts that end.

mod bins;
mod captures;
pub mod device_pool;
pub mod gate;
mod handles;
mod lock;
pub mod plan;
mod policy;
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
pub use types::{FreeError, Freed, Grant, Source, Stamp};
