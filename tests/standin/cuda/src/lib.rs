//! A stand-in for libcuda on machines without a GPU.
//!
//! It answers the driver API as the real driver does, as far as memory, streams and graphs go.
//! Device memory is memory of the host. It models the work on streams to report errors that the
//! real driver cannot, the *findings* (see `standin_findings`):
//!
//! - two accesses to the same bytes without an order between them,
//! - memory taken away under work that uses it,
//! - addresses without memory.
//!
//! Structure: `api!` defines each function with its name, version and variants. `procs` searches
//! these for `cuGetProcAddress`. All state lies behind one lock (`state`). A new area is a module
//! with its `api!`, its `PROCS` in the list of `procs`, and a field of `State`. The modules
//! `clock`, `finish`, `timeline`, `alias`, `oracle` and `model` know nothing of CUDA's boundary.

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
