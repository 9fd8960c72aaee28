//! Arrays: recorded, with the bytes of their elements.

use std::ffi::c_uint;

use cudarc::driver::sys;
use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::passthrough::{self, Request};

/// Returns the bytes of one element: the channel format's width (`CUarray_format`, cuda.h) times
/// the channels. Formats with subsampled or compressed blocks take fewer.
fn element(format: u32, channels: c_uint) -> u64 {
    let width = match format {
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        0x03 | 0x0a | 0x20 => 4,
        _ => 2,
    };
    width * u64::from(channels)
}

/// Returns the bytes of all levels. Each level has half the edges of the one before.
fn bytes(edges: [usize; 3], element: u64, levels: u32) -> u64 {
    let of = |level: u32| {
        let edges = edges.map(|edge| (edge as u64 >> level).max(1));
        edges.into_iter().fold(element, u64::saturating_mul)
    };
    (0..levels).map(of).fold(0, u64::saturating_add)
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
        bytes(
            [(*d).Width, (*d).Height, 1],
            element(format, (*d).NumChannels),
            1,
        )
    }
}

/// # Safety
/// `descriptor` is null or a valid pointer.
unsafe fn bytes_3d(descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR, levels: u32) -> u64 {
    if descriptor.is_null() {
        return 0;
    }
    // SAFETY: valid; the format is read as the integer that C has there.
    unsafe {
        let format = (&raw const (*descriptor).Format).cast::<u32>().read();
        let d = descriptor;
        let edges = [(*d).Width, (*d).Height, (*d).Depth];
        bytes(edges, element(format, (*d).NumChannels), levels)
    }
}

fn create(
    class: Class,
    array: *mut Handle,
    bytes: u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    // SAFETY: the driver wrote the handle.
    let made = || unsafe { (*array as u64, bytes) };
    passthrough::allocate(Request::new(class, bytes), call, made)
}

driver_hooks! {
    /// Makes an array of one or two dimensions.
    fn cuArrayCreate_v2(array: *mut Handle, descriptor: *const sys::CUDA_ARRAY_DESCRIPTOR) {
        // SAFETY: the caller's descriptor.
        let bytes = unsafe { bytes_2d(descriptor) };
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        create(Class::Array, array, bytes, || unsafe { real::cuArrayCreate_v2(array, descriptor) })
    }
    /// Makes an array of up to three dimensions.
    fn cuArray3DCreate_v2(array: *mut Handle, descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR) {
        // SAFETY: the caller's descriptor.
        let bytes = unsafe { bytes_3d(descriptor, 1) };
        // SAFETY: as above.
        create(Class::Array, array, bytes, || unsafe {
            real::cuArray3DCreate_v2(array, descriptor)
        })
    }
    /// Frees an array and records it.
    fn cuArrayDestroy(array: Handle) {
        // SAFETY: as above.
        passthrough::free(array as u64, 0, || unsafe { real::cuArrayDestroy(array) })
    }
    /// Makes an array with smaller copies of itself: each level has half the edge of the one
    /// before.
    fn cuMipmappedArrayCreate(
        array: *mut Handle, descriptor: *const sys::CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint,
    ) {
        // SAFETY: the caller's descriptor.
        let bytes = unsafe { bytes_3d(descriptor, levels.clamp(1, 32)) };
        // SAFETY: as above.
        create(Class::MipmappedArray, array, bytes, || unsafe {
            real::cuMipmappedArrayCreate(array, descriptor, levels)
        })
    }
    /// Frees a mipmapped array and records it.
    fn cuMipmappedArrayDestroy(array: Handle) {
        // SAFETY: as above.
        passthrough::free(array as u64, 0, || unsafe { real::cuMipmappedArrayDestroy(array) })
    }
}
