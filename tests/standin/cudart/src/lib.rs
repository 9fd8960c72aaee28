//! A stand-in for libcudart on machines without a GPU.
//!
//! It behaves towards the driver as the real one does: it finds `libcuda.so.1` by `dlopen`, takes its
//! functions from `cuGetProcAddress` (once for the legacy default stream, once for the per-thread one),
//! makes primary contexts current, and hands the driver's results to its caller unchanged (the numbers of
//! `cudaError_t` are those of `CUresult`).
//!
//! One archive serves every version: [`version`] reads a constant that `tests/standin/build-cudart` links in.

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
