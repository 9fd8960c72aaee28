//! libgpushim.so: the part of gpushim that lives inside the CUDA process.
//!
//! Thin: catch the call, ask the pool, record, answer. What can be said without a driver is in the crates alloc, trace,
//! unwind and config. The modules are floors; a file imports only from its own floor and lower ones, and no files import
//! each other in a circle (`tests/imports/check.py`). From the lowest to the highest:
//!
//! - [`base`]: settings, the state of a thread, the dynamic linker, and the boundary that no panic passes.
//! - [`cuda`]: the driver: its functions, contexts, events, streams and captures. It knows no hook and no recorder.
//! - [`record`]: the recorder. It is told what happened and writes that to the trace; it imports only `cuda` and `base`.
//! - [`memory`]: pools, what the driver serves itself (passthrough), the budget, and what captures mean for pools.
//! - [`process`]: the start, which connects the floors; the background thread; the environment.
//! - [`hooks`]: what the host calls: functions of the driver, the runtime, PyTorch, NVTX, the dynamic linker, and ours.

#![allow(non_snake_case)]

mod base;
mod cuda;
mod hooks;
mod memory;
mod process;
mod record;
