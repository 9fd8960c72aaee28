//! Stream-ordered memory: from this library's pools, in the order of the streams.

use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::streams;
use crate::cuda::types::{CUresult, DevicePtr, Handle};
use crate::hooks::driver::hook::driver_hooks;
use crate::hooks::driver::memory::{leave_null, write_answer};
use crate::memory::passthrough::{self, Request};
use crate::memory::{registry, stream_ordered};

/// Allocates from the driver's own pools: for graphs, and if no pool of this library serves the
/// request.
pub fn forward(
    address: *mut DevicePtr,
    bytes: usize,
    pool: Option<u64>,
    stream: u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    // The memory is of the stream's device, whichever context is current.
    let of_pool = pool.and_then(registry::of).map(|entry| entry.device);
    let device = of_pool.or_else(|| streams::device_of(stream));
    let request = Request {
        device,
        stream,
        source: pool,
        is_captured: stream_ordered::is_captured(stream),
        ..Request::new(Class::PoolAsync, bytes as u64)
    };
    // SAFETY: the driver wrote the address, if that is not null.
    let made = || unsafe { (address.as_ref().map_or(0, |address| *address), bytes as u64) };
    let result = passthrough::allocate(request, call, made);
    // SAFETY: the address is null or the caller's to be written.
    unsafe { leave_null(result, address) };
    result
}

/// Serves one of the four functions that allocate.
#[inline]
fn serve(
    address: *mut DevicePtr,
    bytes: usize,
    pool: Option<u64>,
    stream: u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    if !address.is_null() {
        let answer = stream_ordered::allocate(bytes, stream, pool);
        // SAFETY: not null, and the caller's to be written.
        if let Some(result) = unsafe { write_answer(answer, address) } {
            return result;
        }
    }
    forward(address, bytes, pool, stream, call)
}

/// Serves the two functions that free. Like the driver's, they free memory of `cuMemAlloc`, too.
#[inline]
fn free(address: DevicePtr, stream: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if let Some(result) = stream_ordered::free_on(address, stream) {
        return result;
    }
    passthrough::free_memory(address, stream, call)
}

driver_hooks! {
    /// Allocates from the device's current pool.
    fn cuMemAllocAsync(address: *mut DevicePtr, bytes: usize, stream: Handle) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        serve(address, bytes, None, streams::named(stream, false), || unsafe {
            real::cuMemAllocAsync(address, bytes, stream)
        })
    }
    /// Allocates from the device's current pool, per-thread default stream.
    fn cuMemAllocAsync_ptsz(address: *mut DevicePtr, bytes: usize, stream: Handle) {
        // SAFETY: as above.
        serve(address, bytes, None, streams::named(stream, true), || unsafe {
            real::cuMemAllocAsync_ptsz(address, bytes, stream)
        })
    }
    /// Allocates from a pool, in the order of a stream.
    fn cuMemAllocFromPoolAsync(
        address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle,
    ) {
        // SAFETY: as above.
        serve(address, bytes, Some(pool as u64), streams::named(stream, false), || unsafe {
            real::cuMemAllocFromPoolAsync(address, bytes, pool, stream)
        })
    }
    /// Allocates from a pool, per-thread default stream.
    fn cuMemAllocFromPoolAsync_ptsz(
        address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle,
    ) {
        // SAFETY: as above.
        serve(address, bytes, Some(pool as u64), streams::named(stream, true), || unsafe {
            real::cuMemAllocFromPoolAsync_ptsz(address, bytes, pool, stream)
        })
    }
    /// Frees memory into its pool, in the order of a stream.
    fn cuMemFreeAsync(address: DevicePtr, stream: Handle) {
        // SAFETY: as above.
        free(address, streams::named(stream, false), || unsafe { real::cuMemFreeAsync(address, stream) })
    }
    /// Frees memory into its pool, in the order of a stream, per-thread default stream.
    fn cuMemFreeAsync_ptsz(address: DevicePtr, stream: Handle) {
        // SAFETY: as above.
        free(address, streams::named(stream, true), || unsafe {
            real::cuMemFreeAsync_ptsz(address, stream)
        })
    }
}
