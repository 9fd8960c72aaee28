//! Device memory: what the pool serves, and what stands close to it.

use gpushim_alloc::device_pool::Found;
use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::types::{
    CONTEXT_IS_DESTROYED, CUresult, DevicePtr, NOT_FOUND, OUT_OF_MEMORY, SUCCESS,
};
use crate::cuda::{context, green};
use crate::hooks::driver::hook::driver_hooks;
use crate::hooks::driver::pointer;
use crate::memory::{allocator, budget, elastic, ipc_import, memory_info, passthrough, registry};

/// Bytes that rows are padded to.
const PITCH: u64 = 512;

driver_hooks! {
    /// Device memory from the pool.
    fn cuMemAlloc_v2(address: *mut DevicePtr, bytes: usize) {
        if !address.is_null() {
            match allocator::allocate(bytes as u64) {
                Some(Ok(block)) => {
                    // SAFETY: not null, and the caller's to be written.
                    unsafe { *address = block };
                    return SUCCESS;
                }
                Some(Err(error)) => {
                    // As the driver leaves it.
                    // SAFETY: not null, and the caller's to be written.
                    unsafe { *address = 0 };
                    return error;
                }
                None => {}
            }
        }
        // SAFETY: the caller's arguments, unchanged.
        let result = passthrough::forward(Class::Device, bytes as u64, || unsafe {
            real::cuMemAlloc_v2(address, bytes)
        });
        if result == SUCCESS {
            // SAFETY: the driver wrote the address.
            passthrough::allocated(Class::Device, unsafe { *address }, bytes as u64, 0);
        } else if result == OUT_OF_MEMORY && !address.is_null() {
            // The driver was not asked if that is the limit's answer.
            // SAFETY: not null, and the caller's to be written.
            unsafe { *address = 0 };
        }
        result
    }

    /// Device memory back to the pool, or to the driver if it never was ours.
    fn cuMemFree_v2(address: DevicePtr) {
        if context::is_destroyed() {
            return CONTEXT_IS_DESTROYED;
        }
        allocator::free(address, false).unwrap_or_else(|| {
            // SAFETY: the caller's argument, unchanged.
            passthrough::free_memory(address, 0, || unsafe { real::cuMemFree_v2(address) })
        })
    }

    /// Rows with padding: the driver's, because only it knows the pitch.
    fn cuMemAllocPitch_v2(
        address: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: u32,
    ) {
        // The driver pads rows to its own alignment, which is this much at present.
        let row = (width as u64).checked_next_multiple_of(PITCH).unwrap_or(u64::MAX);
        let bytes = row.saturating_mul(height as u64);
        // SAFETY: the caller's arguments, unchanged.
        let result = passthrough::forward(Class::Pitched, bytes, || unsafe {
            real::cuMemAllocPitch_v2(address, pitch, width, height, element)
        });
        if result == SUCCESS {
            // SAFETY: the driver wrote both.
            let (address, pitch) = unsafe { (*address, *pitch) };
            let size = pitch as u64 * height as u64;
            if let Some(context) = context::current().map(green::owner) {
                budget::correct_in(context, bytes, size);
            }
            passthrough::allocated(Class::Pitched, address, size, 0);
        } else if result == OUT_OF_MEMORY && !address.is_null() {
            // The driver was not asked if that is the limit's answer.
            // SAFETY: not null, and the caller's to be written.
            unsafe { *address = 0 };
        }
        result
    }

    /// Managed memory: the driver's.
    fn cuMemAllocManaged(address: *mut DevicePtr, bytes: usize, flags: u32) {
        // SAFETY: the caller's arguments, unchanged.
        let result = passthrough::forward(Class::Managed, bytes as u64, || unsafe {
            real::cuMemAllocManaged(address, bytes, flags)
        });
        if result == SUCCESS {
            // SAFETY: the driver wrote the address.
            passthrough::allocated(Class::Managed, unsafe { *address }, bytes as u64, 0);
        }
        result
    }

    /// Free and total memory, with what the cache could give back counted as free.
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        // SAFETY: the caller's arguments, unchanged; each is null or may be written.
        unsafe { memory_info::ask(free, total, || real::cuMemGetInfo_v2(free, total)) }
    }

    /// Base and size of an allocation. A cached block may be larger than what was asked for.
    fn cuMemGetAddressRange_v2(base: *mut DevicePtr, size: *mut usize, address: DevicePtr) {
        if context::current().is_none() {
            // The driver returns the reason. SAFETY: the caller's arguments, unchanged.
            return unsafe { real::cuMemGetAddressRange_v2(base, size, address) };
        }
        if let Some((segment, _)) = elastic::find(address) {
            // SAFETY: each is null or the caller's to be written.
            unsafe {
                base.as_mut().into_iter().for_each(|base| *base = segment.base);
                size.as_mut().into_iter().for_each(|size| *size = segment.bytes as usize);
            }
            return SUCCESS;
        }
        if let Some((start, bytes)) = ipc_import::find(address) {
            // SAFETY: as above.
            unsafe {
                base.as_mut().into_iter().for_each(|base| *base = start);
                size.as_mut().into_iter().for_each(|size| *size = bytes as usize);
            }
            return SUCCESS;
        }
        let ours = match registry::used().map(|pool| pool.look_up(address)) {
            Some(Found::Free) => return NOT_FOUND,
            Some(Found::Live(start, requested)) => Some((start, requested)),
            Some(Found::Unknown) | None => None,
        };
        if registry::owner(address).is_some() {
            let Some(pointer::PoolBlock { block, .. }) = pointer::block(address) else {
                return NOT_FOUND;
            };
            // SAFETY: each is null or the caller's to be written.
            unsafe {
                base.as_mut().into_iter().for_each(|base| *base = block.address);
                size.as_mut().into_iter().for_each(|size| *size = block.requested as usize);
            }
            return SUCCESS;
        }
        // SAFETY: the caller's arguments, unchanged.
        let result = unsafe { real::cuMemGetAddressRange_v2(base, size, address) };
        if result == SUCCESS && !size.is_null()
            && let Some((start, requested)) = ours {
                let mut whole = 0;
                let asked = if base.is_null() {
                    // SAFETY: `whole` is ours; the size is not wanted.
                    unsafe { real::cuMemGetAddressRange_v2(&mut whole, std::ptr::null_mut(), address) }
                } else {
                    // SAFETY: the driver wrote it just now.
                    whole = unsafe { *base };
                    SUCCESS
                };
                // A part of a segment keeps the segment's range: an IPC handle opens all of it.
                if asked == SUCCESS && whole == start {
                    // SAFETY: not null, and the caller's to be written.
                    unsafe { *size = requested as usize };
                }
            }
        result
    }
}
