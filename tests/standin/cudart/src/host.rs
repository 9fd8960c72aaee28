//! Page-locked host memory.

use std::ffi::{c_uint, c_void};

use std::ptr::null_mut;

use crate::driver::{INVALID_VALUE, SUCCESS};

entries! {
    /// Allocates page-locked memory without flags; null for 0 bytes.
    fn cudaMallocHost(pointer: *mut *mut c_void, bytes: usize) |driver| {
        if bytes == 0 && !pointer.is_null() {
            // SAFETY: checked just above; otherwise the caller's promise.
            unsafe { *pointer = null_mut() };
            SUCCESS
        } else {
            forward!(driver.cuMemHostAlloc(pointer, bytes, 0))
        }
    }

    /// Allocates page-locked memory with flags; null for 0 bytes.
    fn cudaHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) |driver| {
        if bytes == 0 && !pointer.is_null() {
            // SAFETY: checked just above; otherwise the caller's promise.
            unsafe { *pointer = null_mut() };
            SUCCESS
        } else {
            forward!(driver.cuMemHostAlloc(pointer, bytes, flags))
        }
    }

    /// Frees page-locked memory; null is allowed.
    fn cudaFreeHost(pointer: *mut c_void) |driver| {
        if pointer.is_null() { SUCCESS } else { forward!(driver.cuMemFreeHost(pointer)) }
    }

    /// Page-locks memory of the program.
    fn cudaHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) |driver| {
        if pointer.is_null() { INVALID_VALUE } else { forward!(driver.cuMemHostRegister(pointer, bytes, flags)) }
    }

    /// Ends the page lock of memory of the program.
    fn cudaHostUnregister(pointer: *mut c_void) |driver| { forward!(driver.cuMemHostUnregister(pointer)) }

    /// Returns the device's address of page-locked memory.
    fn cudaHostGetDevicePointer(device: *mut u64, host: *mut c_void, flags: c_uint) |driver| {
        forward!(driver.cuMemHostGetDevicePointer(device, host, flags))
    }

    /// Returns the flags that page-locked memory was made with.
    fn cudaHostGetFlags(flags: *mut c_uint, host: *mut c_void) |driver| { forward!(driver.cuMemHostGetFlags(flags, host)) }
}
