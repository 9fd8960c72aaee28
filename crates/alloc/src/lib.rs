//! The caching allocator: pools of device memory, without CUDA.
//!
//! [`pool`] serves the `cudaMalloc` family, [`mempool`] the stream-ordered one; [`plan`] is a plan of addresses that
//! either may follow; [`gate`] keeps calls out of contexts that end.

mod bins;
mod captures;
pub mod gate;
mod handles;
mod lock;
pub mod mempool;
pub mod plan;
mod policy;
pub mod pool;
mod size_class;
mod slab;
mod stats;
mod types;

pub use handles::{Address, Context, Stream};
pub use policy::{Policy, Reuse, TICKS_TO_DECAY};
pub use stats::Stats;
pub use types::{FreeError, Freed, Grant, Source, Stamp};
