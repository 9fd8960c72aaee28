//! Stream-ordered memory: the driver's own pools for now, recorded with their streams.

use gpushim_core::trace::Class;

use super::{DevicePtr, Handle};
use crate::driver::{CUresult, SUCCESS};
use crate::interpose::hook::driver_hooks;
use crate::{allocator, foreign};

/// `CU_STREAM_PER_THREAD`: what stream 0 means to a `_ptsz` function.
const PER_THREAD: u64 = 2;

fn per_thread(stream: Handle) -> u64 {
    match stream as u64 {
        0 => PER_THREAD,
        stream => stream,
    }
}

fn allocate(
    address: *mut DevicePtr,
    bytes: usize,
    stream: u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    let result = allocator::forward(Class::PoolAsync, bytes as u64, call);
    if result == SUCCESS && !address.is_null() {
        // SAFETY: the driver wrote the address.
        foreign::allocated(Class::PoolAsync, unsafe { *address }, bytes as u64, stream);
    }
    result
}

/// The driver takes back memory of `cuMemAlloc` too: what came from our pool goes back there, where the
/// fence covers the stream's work with all other.
fn free(address: DevicePtr, stream: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    match allocator::free(address) {
        Some(Ok(())) => SUCCESS,
        Some(Err(error)) => error,
        None => foreign::free(address, stream, call),
    }
}

driver_hooks! {
    /// Memory from the current pool, for a stream.
    fn cuMemAllocAsync(address: *mut DevicePtr, bytes: usize, stream: Handle) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        allocate(address, bytes, stream as u64, || unsafe {
            real::cuMemAllocAsync(address, bytes, stream)
        })
    }
    /// Memory from the current pool, for a stream; 0 is the thread's own.
    fn cuMemAllocAsync_ptsz(address: *mut DevicePtr, bytes: usize, stream: Handle) {
        // SAFETY: as above.
        allocate(address, bytes, per_thread(stream), || unsafe {
            real::cuMemAllocAsync_ptsz(address, bytes, stream)
        })
    }
    /// Memory from a pool, for a stream.
    fn cuMemAllocFromPoolAsync(
        address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle,
    ) {
        // SAFETY: as above.
        allocate(address, bytes, stream as u64, || unsafe {
            real::cuMemAllocFromPoolAsync(address, bytes, pool, stream)
        })
    }
    /// Memory from a pool, for a stream; 0 is the thread's own.
    fn cuMemAllocFromPoolAsync_ptsz(
        address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle,
    ) {
        // SAFETY: as above.
        allocate(address, bytes, per_thread(stream), || unsafe {
            real::cuMemAllocFromPoolAsync_ptsz(address, bytes, pool, stream)
        })
    }
    /// Memory back to its pool, in a stream's order.
    fn cuMemFreeAsync(address: DevicePtr, stream: Handle) {
        // SAFETY: as above.
        free(address, stream as u64, || unsafe { real::cuMemFreeAsync(address, stream) })
    }
    /// Memory back to its pool, in a stream's order; 0 is the thread's own.
    fn cuMemFreeAsync_ptsz(address: DevicePtr, stream: Handle) {
        // SAFETY: as above.
        free(address, per_thread(stream), || unsafe {
            real::cuMemFreeAsync_ptsz(address, stream)
        })
    }
}
