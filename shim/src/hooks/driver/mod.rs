//! Hooks of the CUDA driver API, a file per family of its documentation.
//!
//! Handles and structures are opaque pointers here unless a field is read: the driver checks them.

use crate::hooks::hook::Hook;
pub mod array;
pub mod calls;
pub mod context;
pub mod external;
pub mod get_proc_address;
pub mod graph;
pub mod green;
pub mod host;
pub mod memory;
pub mod mempool;
pub mod module;
pub mod pointer;
pub mod stream;
pub mod stream_ordered;
pub mod virtual_memory;

use std::ffi::c_void;

/// An opaque handle of the driver's.
pub type Handle = *mut c_void;
/// `CUdeviceptr`.
pub type DevicePtr = u64;

/// All hooks.
pub static FAMILIES: [&[&Hook]; 14] = [
    memory::HOOKS,
    stream_ordered::HOOKS,
    mempool::HOOKS,
    pointer::HOOKS,
    context::HOOKS,
    green::HOOKS,
    stream::HOOKS,
    graph::HOOKS,
    virtual_memory::HOOKS,
    external::HOOKS,
    array::HOOKS,
    host::HOOKS,
    module::HOOKS,
    get_proc_address::HOOKS,
];

/// All functions that we call without standing in for them.
pub static CALLS: [&[&Hook]; 1] = [calls::CALLS];
