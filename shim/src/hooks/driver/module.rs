//! Code that takes device memory when it is loaded: the cache makes room for it, and the trace has
//! its bytes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::device_memory::free_bytes;
use crate::memory::passthrough::forward;
use crate::record::outside;

/// Calls a function that loads code and writes its handle. With a current context, records by how
/// many bytes the device's free memory fell. Allocations of other threads meanwhile count, too.
fn load(loaded: *mut Handle, call: impl FnMut() -> CUresult) -> CUresult {
    let before = free_bytes();
    let result = forward(None, call);
    if result == SUCCESS && !loaded.is_null() {
        let bytes = before
            .zip(free_bytes())
            .map(|(before, after)| before.saturating_sub(after));
        // SAFETY: not null, and the driver wrote the handle.
        outside::module_loaded(unsafe { *loaded } as u64, bytes);
    }
    result
}

driver_hooks! {
    /// Loads a module from a file.
    fn cuModuleLoad(module: *mut Handle, file: *const c_char) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        load(module, || unsafe { real::cuModuleLoad(module, file) })
    }
    /// Loads a module from memory.
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void) {
        // SAFETY: as above.
        load(module, || unsafe { real::cuModuleLoadData(module, image) })
    }
    /// Loads a module from memory, with options.
    fn cuModuleLoadDataEx(
        module: *mut Handle, image: *const c_void, n: c_uint, options: *mut c_int,
        values: *mut *mut c_void,
    ) {
        // SAFETY: as above.
        load(module, || unsafe { real::cuModuleLoadDataEx(module, image, n, options, values) })
    }
    /// Loads a module from a fat binary.
    fn cuModuleLoadFatBinary(module: *mut Handle, binary: *const c_void) {
        // SAFETY: as above.
        load(module, || unsafe { real::cuModuleLoadFatBinary(module, binary) })
    }
    /// Loads a library from memory. The driver chooses the time and the context in which its parts
    /// are loaded.
    fn cuLibraryLoadData(
        library: *mut Handle, code: *const c_void, jit_options: *mut c_int,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int,
        values: *mut *mut c_void, count: c_uint,
    ) {
        // SAFETY: as above.
        load(library, || unsafe {
            real::cuLibraryLoadData(
                library, code, jit_options, jit_values, jit_count, options, values, count,
            )
        })
    }
    /// Loads a library from a file.
    fn cuLibraryLoadFromFile(
        library: *mut Handle, file: *const c_char, jit_options: *mut c_int,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut c_int,
        values: *mut *mut c_void, count: c_uint,
    ) {
        // SAFETY: as above.
        load(library, || unsafe {
            real::cuLibraryLoadFromFile(
                library, file, jit_options, jit_values, jit_count, options, values, count,
            )
        })
    }
    /// Loads a library's module into the current context.
    fn cuLibraryGetModule(module: *mut Handle, library: Handle) {
        // SAFETY: as above.
        load(module, || unsafe { real::cuLibraryGetModule(module, library) })
    }
    /// Loads a kernel of a library into the current context.
    fn cuKernelGetFunction(function: *mut Handle, kernel: Handle) {
        // SAFETY: as above.
        forward(None, || unsafe { real::cuKernelGetFunction(function, kernel) })
    }
}
