//! The caching allocator: pools of device memory, without CUDA.
//!
//! [`pool`] serves the `cudaMalloc` family, [`mempool`] the stream-ordered one; [`placement`] is a plan of addresses that
//! either may follow; [`gate`] keeps calls out of contexts that end.

pub mod gate;
pub mod mempool;
pub mod placement;
pub mod pool;
