//! The library libgpushim.so: the part of gpushim that runs inside the CUDA process.
//!
//! The dynamic linker loads it before the program by `LD_PRELOAD`. It exports the functions of the
//! CUDA driver and runtime for memory. A hook asks a pool for the block or forwards the call,
//! records an event into the trace, and answers. Crates that need no driver do the rest:
//! `gpushim-alloc` has the pools, `gpushim-trace` the trace, `gpushim-unwind` call stacks, and
//! `gpushim-config` the settings. The library cannot be linked from Rust; a program runs with it by
//!
//! ```sh
//! LD_PRELOAD=$PWD/dist/libgpushim.so GPUSHIM_POLICY=vmm python train.py
//! ```
//!
//! The modules are floors. A file imports only from its own floor and lower ones, and no files
//! import each other in a circle (`tests/imports/check.py`). From the lowest to the highest:
//!
//! - `base`: settings, the state of a thread, the dynamic linker, and the boundary that no panic
//!   passes.
//! - `cuda`: the driver: its functions, contexts, events, streams and captures. It imports no hook
//!   and no recorder.
//! - `record`: the recorder, which writes events into the trace. It imports only `cuda` and `base`.
//! - `memory`: pools, memory that the driver serves itself (passthrough), the limit, and the rules
//!   of captures for pools.
//! - `process`: the start, which connects the floors; the background thread; the environment.
//! - `hooks`: the functions that the host calls: of the driver, the runtime, PyTorch, NVTX and the
//!   dynamic linker, and this library's own exports.

#![allow(non_snake_case)]

mod base;
mod cuda;
mod hooks;
mod memory;
mod process;
mod record;
