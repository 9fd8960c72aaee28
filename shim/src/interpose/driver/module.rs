//! Code that takes device memory when it is loaded: the cache makes room for it.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::Handle;
use crate::allocator::forward_unsized;
use crate::driver::CUresult;
use crate::interpose::hook::driver_hooks;

driver_hooks! {
    /// A module from a file.
    fn cuModuleLoad(module: *mut Handle, file: *const c_char) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        forward_unsized(|| unsafe { real::cuModuleLoad(module, file) })
    }
    /// A module from memory.
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void) {
        // SAFETY: as above.
        forward_unsized(|| unsafe { real::cuModuleLoadData(module, image) })
    }
    /// A module from memory, with options.
    fn cuModuleLoadDataEx(
        module: *mut Handle, image: *const c_void, n: c_uint, options: *mut c_int,
        values: *mut *mut c_void,
    ) {
        // SAFETY: as above.
        forward_unsized(|| unsafe { real::cuModuleLoadDataEx(module, image, n, options, values) })
    }
    /// A module from a fat binary.
    fn cuModuleLoadFatBinary(module: *mut Handle, binary: *const c_void) {
        // SAFETY: as above.
        forward_unsized(|| unsafe { real::cuModuleLoadFatBinary(module, binary) })
    }
    /// A library's module, loaded into the current context.
    fn cuLibraryGetModule(module: *mut Handle, library: Handle) {
        // SAFETY: as above.
        forward_unsized(|| unsafe { real::cuLibraryGetModule(module, library) })
    }
    /// A kernel of a library, loaded into the current context.
    fn cuKernelGetFunction(function: *mut Handle, kernel: Handle) {
        // SAFETY: as above.
        forward_unsized(|| unsafe { real::cuKernelGetFunction(function, kernel) })
    }
}
