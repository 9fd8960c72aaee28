//! Device memory: linear, pitched, managed and stream-ordered, with its allocation and free, and
//! pointer attributes.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null_mut, write_bytes};

use crate::driver::{Code, Handle, INVALID_VALUE, SUCCESS};
use crate::version::version;

/// Pitched memory (`cudaPitchedPtr`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Pitched {
    pointer: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

/// Extent of memory (`cudaExtent`). The width is in bytes for linear memory, in elements for
/// arrays.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Extent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// Answers an allocation of 0 bytes with a null pointer. The driver would refuse it.
///
/// # Safety
/// `pointer` is null or valid for a write.
unsafe fn nothing<T>(pointer: *mut T, null: T) -> Code {
    if pointer.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: checked just above; otherwise the caller's promise.
    unsafe { *pointer = null };
    SUCCESS
}

entries! {
    /// Allocates device memory; null for 0 bytes.
    fn cudaMalloc(pointer: *mut u64, bytes: usize) |driver| {
        match bytes {
            // SAFETY: the caller's pointer.
            0 => unsafe { nothing(pointer, 0) },
            _ => forward!(driver.cuMemAlloc(pointer, bytes)),
        }
    }

    /// Frees device memory. Null is allowed, and makes a context current as well.
    fn cudaFree(pointer: u64) |driver| {
        if pointer == 0 { SUCCESS } else { forward!(driver.cuMemFree(pointer)) }
    }

    /// Allocates memory that host and devices share.
    fn cudaMallocManaged(pointer: *mut u64, bytes: usize, flags: c_uint) |driver| {
        forward!(driver.cuMemAllocManaged(pointer, bytes, flags))
    }

    /// Allocates rows of `width` bytes, each at a multiple of the pitch.
    fn cudaMallocPitch(pointer: *mut u64, pitch: *mut usize, width: usize, height: usize) |driver| {
        if width == 0 || height == 0 {
            // SAFETY: the caller's pointer.
            unsafe { nothing(pointer, 0) }
        } else {
            forward!(driver.cuMemAllocPitch(pointer, pitch, width, height, 4))
        }
    }

    /// Allocates slices of pitched rows.
    fn cudaMalloc3D(pitched: *mut Pitched, extent: Extent) |driver| {
        if pitched.is_null() {
            INVALID_VALUE
        } else {
            let (mut pointer, mut pitch) = (0, 0);
            let rows = extent.height.saturating_mul(extent.depth);
            let code = match extent.width == 0 || rows == 0 {
                true => SUCCESS,
                false => forward!(driver.cuMemAllocPitch(&mut pointer, &mut pitch, extent.width, rows, 4)),
            };
            if code == SUCCESS {
                // SAFETY: checked above; otherwise the caller's promise.
                unsafe { *pitched = Pitched { pointer, pitch, width: extent.width, height: extent.height } };
            }
            code
        }
    }

    /// Allocates on a stream from the device's current pool.
    fn cudaMallocAsync | cudaMallocAsync_ptsz(pointer: *mut u64, bytes: usize, stream: Handle) |driver| {
        match bytes {
            // SAFETY: the caller's pointer.
            0 => unsafe { nothing(pointer, 0) },
            _ => forward!(driver.cuMemAllocAsync(pointer, bytes, stream)),
        }
    }

    /// Allocates on a stream from a pool.
    fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz(pointer: *mut u64, bytes: usize, pool: Handle, stream: Handle) |driver| {
        match bytes {
            // SAFETY: the caller's pointer.
            0 => unsafe { nothing(pointer, 0) },
            _ => forward!(driver.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream)),
        }
    }

    /// Frees memory on a stream.
    fn cudaFreeAsync | cudaFreeAsync_ptsz(pointer: u64, stream: Handle) |driver| {
        if pointer == 0 { SUCCESS } else { forward!(driver.cuMemFreeAsync(pointer, stream)) }
    }

    /// Returns kind, device and addresses of the memory that a pointer points into.
    fn cudaPointerGetAttributes(attributes: *mut Attributes, pointer: u64) |driver| {
        let (mut kind, mut managed, mut ordinal) = (0u32, 0u32, -2i32);
        let (mut device, mut host) = (0u64, null_mut::<c_void>());
        // Memory type, device pointer, host pointer, managed, device ordinal.
        let asked: [c_int; 5] = [2, 3, 4, 8, 9];
        let values: [*mut c_void; 5] = [
            (&raw mut kind).cast(),
            (&raw mut device).cast(),
            (&raw mut host).cast(),
            (&raw mut managed).cast(),
            (&raw mut ordinal).cast(),
        ];
        if attributes.is_null() {
            INVALID_VALUE
        } else {
            match forward!(driver.cuPointerGetAttributes(5, asked.as_ptr(), values.as_ptr(), pointer)) {
                SUCCESS => {
                    let known = kind != 0;
                    let found = Attributes {
                        // Unregistered, host, device, managed.
                        kind: if managed as u8 != 0 { 3 } else { kind as c_int },
                        device: if known { ordinal } else { -1 },
                        device_pointer: device,
                        // A plain host pointer is returned unchanged.
                        host_pointer: if known { host as u64 } else { pointer },
                    };
                    // SAFETY: checked above; otherwise the caller's promise. CUDA 13 appended 64
                    // reserved bytes.
                    unsafe {
                        if version() >= 13000 {
                            write_bytes(attributes.cast::<u8>(), 0, size_of::<Attributes>() + 64);
                        }
                        *attributes = found;
                    }
                    SUCCESS
                }
                code => code,
            }
        }
    }
}

/// Attributes of a pointer (`cudaPointerAttributes`) as of CUDA 10. CUDA 13 has reserved words
/// after them.
#[repr(C)]
struct Attributes {
    kind: c_int,
    device: c_int,
    device_pointer: u64,
    host_pointer: u64,
}
