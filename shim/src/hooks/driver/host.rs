//! Pinned host memory: recorded.

use std::ffi::{c_uint, c_void};

use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, DevicePtr, INVALID_VALUE};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::passthrough::{self, Request};
use crate::memory::reservations;

fn allocate(
    class: Class,
    address: impl FnOnce() -> *mut c_void,
    bytes: usize,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    let request = Request::new(class, bytes as u64);
    passthrough::allocate(request, call, || (address() as u64, bytes as u64))
}

driver_hooks! {
    /// Allocates pinned memory.
    fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) {
        // SAFETY: the driver writes the address before it is read; arguments unchanged; so below.
        allocate(Class::Host, || unsafe { *address }, bytes, || unsafe {
            real::cuMemAllocHost_v2(address, bytes)
        })
    }
    /// Allocates pinned memory, with flags.
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: c_uint) {
        // SAFETY: as above.
        allocate(Class::Host, || unsafe { *address }, bytes, || unsafe {
            real::cuMemHostAlloc(address, bytes, flags)
        })
    }
    /// Frees pinned memory and records it.
    fn cuMemFreeHost(address: *mut c_void) {
        // SAFETY: as above.
        passthrough::free(address as u64, 0, || unsafe { real::cuMemFreeHost(address) })
    }
    /// Pins host memory and records it.
    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: c_uint) {
        // SAFETY: as above.
        allocate(Class::Registered, || address, bytes, || unsafe {
            real::cuMemHostRegister_v2(address, bytes, flags)
        })
    }
    /// Unpins host memory and records it.
    fn cuMemHostUnregister(address: *mut c_void) {
        // SAFETY: as above.
        passthrough::free(address as u64, 0, || unsafe { real::cuMemHostUnregister(address) })
    }
    /// Returns the device's address of pinned memory. Memory of `cudaMalloc` is not pinned memory,
    /// although the driver has an address for its pages.
    fn cuMemHostGetDevicePointer_v2(device: *mut DevicePtr, address: *mut c_void, flags: c_uint) {
        if reservations::overlap(address as u64, 1) {
            return INVALID_VALUE;
        }
        // SAFETY: as above.
        unsafe { real::cuMemHostGetDevicePointer_v2(device, address, flags) }
    }
    /// Returns the flags of pinned memory, which memory of `cudaMalloc` is not.
    fn cuMemHostGetFlags(flags: *mut c_uint, address: *mut c_void) {
        if reservations::overlap(address as u64, 1) {
            return INVALID_VALUE;
        }
        // SAFETY: as above.
        unsafe { real::cuMemHostGetFlags(flags, address) }
    }
}
