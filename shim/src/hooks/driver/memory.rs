//! Device memory: requests that pools serve, and other requests of device memory.

use gpushim_trace::Class;

use crate::cuda::context;
use crate::cuda::functions::real;
use crate::cuda::types::{
    CONTEXT_IS_DESTROYED, CUresult, DevicePtr, NOT_FOUND, OUT_OF_MEMORY, SUCCESS,
};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::owner::{self, Owner};
use crate::memory::passthrough::{self, Request};
use crate::memory::{cuda_malloc, memory_info};

/// Bytes to whose multiples rows are padded.
const PITCH: u64 = 512;

/// Writes null after a lack of memory, as the driver does: it is not asked if the limit allows no
/// memory.
///
/// # Safety
/// `address` is null or the caller's to be written.
pub(super) unsafe fn leave_null(result: CUresult, address: *mut DevicePtr) {
    if result == OUT_OF_MEMORY && !address.is_null() {
        // SAFETY: not null.
        unsafe { *address = 0 };
    }
}

/// Writes a pool's answer to a request: the block, or null for an error, as the driver does
/// (measured on an H200). `None`: no pool has answered.
///
/// # Safety
/// `address` is the caller's to be written.
#[inline(always)]
pub(super) unsafe fn write_answer(
    answer: Option<Result<u64, CUresult>>,
    address: *mut DevicePtr,
) -> Option<CUresult> {
    let (block, result) = answer?.map_or_else(|error| (0, error), |block| (block, SUCCESS));
    // SAFETY: the caller's to be written.
    unsafe { *address = block };
    Some(result)
}

driver_hooks! {
    /// Allocates device memory from a pool, or from the driver if no pool serves it.
    fn cuMemAlloc_v2(address: *mut DevicePtr, bytes: usize) {
        if !address.is_null() {
            let answer = cuda_malloc::allocate(bytes as u64);
            // SAFETY: not null, and the caller's to be written.
            if let Some(result) = unsafe { write_answer(answer, address) } {
                return result;
            }
        }
        let request = Request::new(Class::Device, bytes as u64);
        // SAFETY: the caller's arguments, unchanged.
        let call = || unsafe { real::cuMemAlloc_v2(address, bytes) };
        // SAFETY: the driver wrote the address.
        let result = passthrough::allocate(request, call, || unsafe { (*address, bytes as u64) });
        // SAFETY: the address is null or the caller's to be written.
        unsafe { leave_null(result, address) };
        result
    }

    /// Frees device memory into its pool, or by the driver if no pool has it.
    fn cuMemFree_v2(address: DevicePtr) {
        if context::is_destroyed() {
            return CONTEXT_IS_DESTROYED;
        }
        cuda_malloc::free(address, false).unwrap_or_else(|| {
            // SAFETY: the caller's argument, unchanged.
            passthrough::free_memory(address, 0, || unsafe { real::cuMemFree_v2(address) })
        })
    }

    /// Allocates padded rows from the driver, because only it knows the pitch.
    fn cuMemAllocPitch_v2(
        address: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: u32,
    ) {
        // The driver pads rows to its own alignment, which is this many bytes at present.
        let row = (width as u64).checked_next_multiple_of(PITCH).unwrap_or(u64::MAX);
        let bytes = row.saturating_mul(height as u64);
        let request = Request::new(Class::Pitched, bytes);
        // SAFETY: the caller's arguments, unchanged.
        let call = || unsafe { real::cuMemAllocPitch_v2(address, pitch, width, height, element) };
        // SAFETY: the driver wrote both.
        let made = || unsafe { (*address, (*pitch * height) as u64) };
        let result = passthrough::allocate(request, call, made);
        // SAFETY: the address is null or the caller's to be written.
        unsafe { leave_null(result, address) };
        result
    }

    /// Allocates managed memory from the driver.
    fn cuMemAllocManaged(address: *mut DevicePtr, bytes: usize, flags: u32) {
        let request = Request::new(Class::Managed, bytes as u64);
        // SAFETY: the caller's arguments, unchanged.
        let call = || unsafe { real::cuMemAllocManaged(address, bytes, flags) };
        // SAFETY: the driver wrote the address.
        passthrough::allocate(request, call, || unsafe { (*address, bytes as u64) })
    }

    /// Returns free and total memory. Memory that the cache could give back counts as free.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        // SAFETY: the caller's arguments, unchanged; each is null or may be written.
        unsafe { memory_info::ask(free, total, || real::cuMemGetInfo_v2(free, total)) }
    }

    /// Returns base and size of an allocation. A cached block may be larger than the request.
    fn cuMemGetAddressRange_v2(base: *mut DevicePtr, size: *mut usize, address: DevicePtr) {
        if context::current().is_none() {
            // The driver returns the reason. SAFETY: the caller's arguments, unchanged.
            return unsafe { real::cuMemGetAddressRange_v2(base, size, address) };
        }
        let owner = owner::of(address);
        let ours = match owner {
            Owner::Nobody => return NOT_FOUND,
            Owner::Whole(_, requested) => Some(requested),
            Owner::Driver => None,
            Owner::Pool(..) | Owner::Segment(..) | Owner::Import(_) => {
                let (start, requested) = owner.range().unwrap_or_default();
                // SAFETY: each is null or the caller's to be written.
                unsafe {
                    base.as_mut().into_iter().for_each(|base| *base = start);
                    size.as_mut().into_iter().for_each(|size| *size = requested as usize);
                }
                return SUCCESS;
            }
        };
        // SAFETY: the caller's arguments, unchanged.
        let result = unsafe { real::cuMemGetAddressRange_v2(base, size, address) };
        if result == SUCCESS && let Some(requested) = ours {
            // SAFETY: null or the caller's to be written.
            unsafe { size.as_mut().into_iter().for_each(|size| *size = requested as usize) };
        }
        result
    }
}
