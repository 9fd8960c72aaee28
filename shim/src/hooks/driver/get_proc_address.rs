//! Both forms of `cuGetProcAddress`, by which every cudart and most other libraries find the
//! driver's functions.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;

/// Names under which a program may ask for the function itself.
pub static NAMES: [&CStr; 2] = [c"cuGetProcAddress", c"cuGetProcAddress_v2"];

/// Driver version since which the name means the form with five arguments.
const V2_SINCE: c_int = 12000;

/// Replaces the function that the driver returned by this library's hook, if there is one.
///
/// The driver's pointer decides, not the name: the variant that a name means depends on the version
/// and the flags. An unknown pointer is passed on unchanged. The exception is `cuGetProcAddress`:
/// the driver returns a pointer to it that it exports nowhere.
fn exchange(symbol: *const c_char, function: *mut *mut c_void, version: c_int) {
    if function.is_null() {
        return;
    }
    // SAFETY: the driver returned success, so it wrote the pointer and read the name.
    unsafe {
        let name = CStr::from_ptr(symbol);
        let ours = if (*function).is_null() {
            std::ptr::null()
        } else if NAMES.contains(&name) {
            if version >= V2_SINCE || name == NAMES[1] {
                cuGetProcAddress_v2 as *const c_void
            } else {
                cuGetProcAddress as *const c_void
            }
        } else {
            super::substitute(*function)
        };
        if !ours.is_null() {
            *function = ours.cast_mut();
        }
    }
}

driver_hooks! {
    /// Finds a function: the form of CUDA 11.3 to 11.8.
    fn cuGetProcAddress(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) {
        // SAFETY: the caller's arguments, unchanged.
        let result = unsafe { real::cuGetProcAddress(symbol, function, version, flags) };
        if result == SUCCESS {
            exchange(symbol, function, version);
        }
        result
    }
    /// Finds a function: the form of CUDA 12 and later.
    fn cuGetProcAddress_v2(
        symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64,
        status: *mut c_int,
    ) {
        // SAFETY: the caller's arguments, unchanged.
        let result = unsafe { real::cuGetProcAddress_v2(symbol, function, version, flags, status) };
        if result == SUCCESS {
            exchange(symbol, function, version);
        }
        result
    }
}
