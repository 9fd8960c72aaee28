//! Hooks of the CUDA driver API, a file per family of its documentation.
//!
//! Each file declares its functions by `driver_hooks!`; all of them together are the table by which our functions are
//! put in the place of the driver's.

pub mod array;
pub mod context;
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

/// All hooks.
pub static FAMILIES: [&[Hook]; 15] = [
    memory::HOOKS,
    stream_ordered::HOOKS,
    mempool::HOOKS,
    pointer::HOOKS,
    context::HOOKS,
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

/// Every hook, family by family.
pub fn hooks() -> impl Iterator<Item = &'static Hook> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// Writes how many of the hooked functions the driver has, and which ones it has not.
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

/// Our function for a pointer of the driver's; null if we do not stand in for it.
pub fn substitute(real: *mut c_void) -> *const c_void {
    if real.is_null() || !functions::resolve() {
        return std::ptr::null();
    }
    hooks()
        .find(|hook| hook.function.real() == real)
        .map_or(std::ptr::null(), |hook| hook.ours)
}

/// Our function of a name; null if it is none of ours.
pub fn ours(name: &CStr) -> *const c_void {
    hooks()
        .find(|hook| hook.function.name == name)
        .map_or(std::ptr::null(), |hook| hook.ours)
}
