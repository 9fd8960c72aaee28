//! Arrays and mipmapped arrays.

use std::ffi::{c_int, c_uint};

use crate::driver::{Handle, INVALID_VALUE, SUCCESS};
use crate::memory::Extent;

/// Description of an array (`CUDA_ARRAY_DESCRIPTOR`).
#[repr(C)]
pub struct Descriptor {
    width: usize,
    height: usize,
    format: c_int,
    channels: c_uint,
}

/// Description of an array (`CUDA_ARRAY3D_DESCRIPTOR`).
#[repr(C)]
pub struct Descriptor3D {
    width: usize,
    height: usize,
    depth: usize,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// Format of an element (`cudaChannelFormatDesc`): bits of each channel, and 0 signed, 1 unsigned,
/// 2 float.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Channels {
    bits: [c_int; 4],
    kind: c_int,
}

impl Channels {
    /// Returns `CUarray_format` and number of channels; `None` for a format that no array has.
    fn format(&self) -> Option<(c_int, c_uint)> {
        let channels = self.bits.iter().filter(|bits| **bits != 0).count() as c_uint;
        let format = match (self.kind, self.bits[0]) {
            (1, 8) => 0x01,
            (1, 16) => 0x02,
            (1, 32) => 0x03,
            (0, 8) => 0x08,
            (0, 16) => 0x09,
            (0, 32) => 0x0a,
            (2, 16) => 0x10,
            (2, 32) => 0x20,
            _ => return None,
        };
        Some((format, channels))
    }

    fn descriptor(&self, extent: Extent, flags: c_uint) -> Option<Descriptor3D> {
        let (format, channels) = self.format()?;
        let Extent {
            width,
            height,
            depth,
        } = extent;
        Some(Descriptor3D {
            width,
            height,
            depth,
            format,
            channels,
            flags,
        })
    }
}

/// Makes a descriptor from the caller's format.
///
/// # Safety
/// `channels` is null or valid for a read.
unsafe fn descriptor(
    channels: *const Channels,
    extent: Extent,
    flags: c_uint,
) -> Option<Descriptor3D> {
    // SAFETY: the caller's promise.
    unsafe { channels.as_ref() }?.descriptor(extent, flags)
}

entries! {
    /// Makes an array of one or two dimensions.
    fn cudaMallocArray(array: *mut Handle, channels: *const Channels, width: usize, height: usize, flags: c_uint) |driver| {
        // SAFETY: the caller's pointer.
        match unsafe { descriptor(channels, Extent { width, height, depth: 0 }, flags) } {
            None => INVALID_VALUE,
            Some(with) if flags != 0 => forward!(driver.cuArray3DCreate(array, &with)),
            Some(Descriptor3D { format, channels, .. }) => {
                forward!(driver.cuArrayCreate(array, &Descriptor { width, height, format, channels }))
            }
        }
    }

    /// Makes an array of up to three dimensions.
    fn cudaMalloc3DArray(array: *mut Handle, channels: *const Channels, extent: Extent, flags: c_uint) |driver| {
        // SAFETY: the caller's pointer.
        match unsafe { descriptor(channels, extent, flags) } {
            None => INVALID_VALUE,
            Some(with) => forward!(driver.cuArray3DCreate(array, &with)),
        }
    }

    /// Destroys an array; null is allowed.
    fn cudaFreeArray(array: Handle) |driver| {
        if array.is_null() { SUCCESS } else { forward!(driver.cuArrayDestroy(array)) }
    }

    /// Makes a mipmapped array.
    fn cudaMallocMipmappedArray(array: *mut Handle, channels: *const Channels, extent: Extent, levels: c_uint, flags: c_uint) |driver| {
        // SAFETY: the caller's pointer.
        match unsafe { descriptor(channels, extent, flags) } {
            None => INVALID_VALUE,
            Some(with) => forward!(driver.cuMipmappedArrayCreate(array, &with, levels)),
        }
    }

    /// Destroys a mipmapped array; null is allowed.
    fn cudaFreeMipmappedArray(array: Handle) |driver| {
        if array.is_null() { SUCCESS } else { forward!(driver.cuMipmappedArrayDestroy(array)) }
    }

    /// Returns one level of a mipmapped array.
    fn cudaGetMipmappedArrayLevel(level: *mut Handle, array: Handle, which: c_uint) |driver| {
        forward!(driver.cuMipmappedArrayGetLevel(level, array, which))
    }
}

/// Makes a format from the bits of its channels.
#[unsafe(no_mangle)]
extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    kind: c_int,
) -> Channels {
    Channels {
        bits: [x, y, z, w],
        kind,
    }
}
