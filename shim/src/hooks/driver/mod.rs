//! Hooks of the CUDA driver API, a file per family of its documentation.
//!
//! Each file declares its functions by `driver_hooks!`.
//! All of them together are the table by which the driver's functions are replaced.

pub mod array;
pub mod context;
pub mod device;
pub mod event;
pub mod external;
pub mod get_proc_address;
pub mod graph;
pub mod green;
pub mod hook;
pub mod host;
pub mod memory;
pub mod mempool;
pub mod module;
pub mod pointer;
pub mod stream;
pub mod stream_ordered;
pub mod virtual_memory;

use std::ffi::{CStr, c_void};

use gpushim_trace::Writer;

use crate::cuda::functions;
use hook::Hook;

/// Hooks of all families, by files.
pub static FAMILIES: [&[Hook]; 16] = [
    memory::HOOKS,
    stream_ordered::HOOKS,
    mempool::HOOKS,
    pointer::HOOKS,
    context::HOOKS,
    device::HOOKS,
    green::HOOKS,
    stream::HOOKS,
    event::HOOKS,
    graph::HOOKS,
    virtual_memory::HOOKS,
    external::HOOKS,
    array::HOOKS,
    host::HOOKS,
    module::HOOKS,
    get_proc_address::HOOKS,
];

/// Returns every hook, family by family.
pub fn hooks() -> impl Iterator<Item = &'static Hook> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Writes the number of hooked functions that the driver has, and the names of the others.
pub fn write_facts(writer: &Writer) {
    let mut absent = Vec::new();
    let mut present = 0;
    for hook in hooks() {
        if hook.function.real().is_null() {
            absent.push(hook.function.name.to_string_lossy());
        } else {
            present += 1;
        }
    }
    writer.fact("hooks", &present.to_string());
    if !absent.is_empty() {
        writer.fact("hooks.absent", &absent.join(" "));
    }
}

/// Returns the hook for a pointer to a driver function; null if there is none.
pub fn substitute(real: *mut c_void) -> *const c_void {
    if real.is_null() || !functions::resolve() {
        return std::ptr::null();
    }
    hooks()
        .find(|hook| hook.function.real() == real)
        .map_or(std::ptr::null(), |hook| hook.ours)
}

/// Returns the hook of a name; null if there is none.
pub fn ours(name: &CStr) -> *const c_void {
    hooks()
        .find(|hook| hook.function.name == name)
        .map_or(std::ptr::null(), |hook| hook.ours)
}
