//! Arrays: recorded, with the bytes of their elements.

use std::ffi::c_uint;

use cudarc::driver::sys;
use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::passthrough;

/// Bytes of one element: the channel format's width (`CUarray_format`, cuda.h) times the channels.
/// Formats with subsampled or compressed blocks are counted as one byte an element and channel.
fn element(format: u32, channels: c_uint) -> u64 {
    let width = match format {
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 1,
    };
    width * u64::from(channels)
}

/// # Safety
/// `descriptor` is null or a valid pointer.
unsafe fn bytes_2d(descriptor: *const sys::CUDA_ARRAY_DESCRIPTOR) -> u64 {
    if descriptor.is_null() {
        return 0;
    }
    // SAFETY: valid; the format is read as the integer that C has there.
    unsafe {
        let format = (&raw const (*descriptor).Format).cast::<u32>().read();
        let d = descriptor;
        (*d).Width as u64 * ((*d).Height as u64).max(1) * element(format, (*d).NumChannels)
    }
}

/// # Safety
/// `descriptor` is null or a valid pointer.
unsafe fn bytes_3d(descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR) -> u64 {
    if descriptor.is_null() {
        return 0;
    }
    // SAFETY: valid; the format is read as the integer that C has there.
    unsafe {
        let format = (&raw const (*descriptor).Format).cast::<u32>().read();
        let d = descriptor;
        (*d).Width as u64
            * ((*d).Height as u64).max(1)
            * ((*d).Depth as u64).max(1)
            * element(format, (*d).NumChannels)
    }
}

fn create(
    class: Class,
    array: *mut Handle,
    bytes: u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    let result = passthrough::forward(class, bytes, call);
    if result == SUCCESS {
        // SAFETY: the driver wrote the handle.
        passthrough::allocated(class, unsafe { *array } as u64, bytes, 0);
    }
    result
}

driver_hooks! {
    /// An array of one or two dimensions.
    fn cuArrayCreate_v2(array: *mut Handle, descriptor: *const sys::CUDA_ARRAY_DESCRIPTOR) {
        // SAFETY: the caller's descriptor.
        let bytes = unsafe { bytes_2d(descriptor) };
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        create(Class::Array, array, bytes, || unsafe { real::cuArrayCreate_v2(array, descriptor) })
    }
    /// An array of up to three dimensions.
    fn cuArray3DCreate_v2(array: *mut Handle, descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR) {
        // SAFETY: the caller's descriptor.
        let bytes = unsafe { bytes_3d(descriptor) };
        // SAFETY: as above.
        create(Class::Array, array, bytes, || unsafe {
            real::cuArray3DCreate_v2(array, descriptor)
        })
    }
    /// An array ends.
    fn cuArrayDestroy(array: Handle) {
        // SAFETY: as above.
        passthrough::free(array as u64, 0, || unsafe { real::cuArrayDestroy(array) })
    }
    /// An array with smaller copies of itself: each level has half the edge of the one before.
    fn cuMipmappedArrayCreate(
        array: *mut Handle, descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint,
    ) {
        // SAFETY: the caller's descriptor.
        let top = unsafe { bytes_3d(descriptor) };
        let bytes = (0..levels.min(32)).map(|level| top >> (2 * level).min(63)).sum();
        // SAFETY: as above.
        create(Class::MipmappedArray, array, bytes, || unsafe {
            real::cuMipmappedArrayCreate(array, descriptor, levels)
        })
    }
    /// A mipmapped array ends.
    fn cuMipmappedArrayDestroy(array: Handle) {
        // SAFETY: as above.
        passthrough::free(array as u64, 0, || unsafe { real::cuMipmappedArrayDestroy(array) })
    }
}
