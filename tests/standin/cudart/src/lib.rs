//! A stand-in for libcudart on machines without a GPU.
//!
//! It behaves towards the driver as the real one does:
//!
//! - It finds `libcuda.so.1` by `dlopen`.
//! - It takes the driver's functions from `cuGetProcAddress`, once for the legacy default stream
//!   and once for the per-thread one.
//! - It makes primary contexts current.
//! - It returns the driver's codes unchanged: the numbers of `cudaError_t` are those of `CUresult`.
//!
//! One archive serves every version: [`version`] reads a constant that `tests/standin/build-cudart`
//! links in.

#[macro_use]
mod driver;
#[macro_use]
mod entry;

mod array;
mod context;
mod copy;
mod device;
mod error;
mod event;
mod graph;
mod host;
mod ipc;
mod kernel;
mod memory;
mod peer;
mod pool;
mod properties;
mod stream;
mod version;

pub use version::version;
