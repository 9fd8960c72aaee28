//! A stand-in for libcuda on machines without a GPU.
//!
//! It answers the driver API as the real driver does as far as memory, streams and graphs go, on
//! memory of the host, and models the work on streams so that it can tell what the real driver
//! cannot: two accesses to the same bytes that nothing orders, memory taken away under work that
//! uses it, addresses that are no memory. Those are *findings*: see `standin_findings`.
//!
//! How it is put together: `api!` writes down each function with its name, version and variants;
//! `procs` searches them for `cuGetProcAddress`. All state lies behind one lock (`state`).
//! A new room is a module with its `api!`, its `PROCS` in the list of `procs`, and a field of
//! `State` for what it keeps. `clock`, `finish`, `timeline`, `alias`, `oracle` and `model` know
//! nothing of CUDA's boundary.

#[macro_use]
mod api;

mod abi;
mod advice;
mod alias;
mod array;
mod attach;
mod capture;
mod capture_api;
mod clock;
mod codes;
mod context;
mod copy;
mod copy3d;
mod device;
mod env;
mod event;
mod exec;
mod external;
mod fault;
mod fill;
mod finish;
mod function;
mod graph;
mod graph_memory;
mod graph_node;
mod green;
mod handles;
mod heap;
mod hooks;
mod host;
mod hostfn;
mod init;
mod ipc;
mod memory;
mod memory_api;
mod mempool;
mod mempool_api;
mod model;
mod module;
mod oracle;
mod peer;
mod physical;
mod pointer;
mod pool;
mod primary;
mod procs;
mod ranges;
mod report;
mod shared;
mod state;
mod stream;
mod stream_attr;
mod structs;
mod thread;
mod timeline;
mod vmm;
mod vmm_api;
mod work;
