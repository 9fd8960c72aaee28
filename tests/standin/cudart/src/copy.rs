//! Copies and memsets of one and two dimensions.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::context;
use crate::driver::{Code, Driver, Handle, SUCCESS};

/// `cudaErrorInvalidMemcpyDirection`.
const INVALID_DIRECTION: Code = 21;

/// Copy of rows (`CUDA_MEMCPY2D`).
#[repr(C)]
pub struct Copy2D {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

/// One end of a `CUDA_MEMCPY2D`.
#[repr(C)]
struct Side {
    x: usize,
    y: usize,
    kind: c_uint,
    host: *mut c_void,
    device: u64,
    array: Handle,
    pitch: usize,
}

impl Side {
    /// Returns a side in linear memory. The address decides between host and device
    /// (`CU_MEMORYTYPE_UNIFIED`).
    fn linear(pointer: u64, pitch: usize) -> Side {
        Side {
            x: 0,
            y: 0,
            kind: 4,
            host: null_mut(),
            device: pointer,
            array: null_mut(),
            pitch,
        }
    }

    /// Returns a side in an array, from byte `x` of row `y` on (`CU_MEMORYTYPE_ARRAY`).
    fn array(array: Handle, x: usize, y: usize) -> Side {
        Side {
            x,
            y,
            kind: 3,
            host: null_mut(),
            device: 0,
            array,
            pitch: 0,
        }
    }
}

/// Copies in the direction that the caller names.
///
/// - 1 to 3: host to device, device to host, device to device.
/// - 0 and 4: the addresses decide the direction.
fn copy(driver: &Driver, to: u64, from: u64, bytes: usize, kind: c_int) -> Code {
    match kind {
        _ if bytes == 0 => SUCCESS,
        1 => forward!(driver.cuMemcpyHtoD(to, from as *const c_void, bytes)),
        2 => forward!(driver.cuMemcpyDtoH(to as *mut c_void, from, bytes)),
        3 => forward!(driver.cuMemcpyDtoD(to, from, bytes)),
        0 | 4 => forward!(driver.cuMemcpy(to, from, bytes)),
        _ => INVALID_DIRECTION,
    }
}

fn copy_on(driver: &Driver, to: u64, from: u64, bytes: usize, kind: c_int, stream: Handle) -> Code {
    match kind {
        _ if bytes == 0 => SUCCESS,
        1 => forward!(driver.cuMemcpyHtoDAsync(to, from as *const c_void, bytes, stream)),
        2 => forward!(driver.cuMemcpyDtoHAsync(to as *mut c_void, from, bytes, stream)),
        3 => forward!(driver.cuMemcpyDtoDAsync(to, from, bytes, stream)),
        0 | 4 => forward!(driver.cuMemcpyAsync(to, from, bytes, stream)),
        _ => INVALID_DIRECTION,
    }
}

fn peers(driver: &Driver, one: c_int, other: c_int) -> Result<(Handle, Handle), Code> {
    Ok((
        context::primary(driver, one)?,
        context::primary(driver, other)?,
    ))
}

entries! {
    /// Copies bytes on the default stream and waits.
    fn cudaMemcpy | cudaMemcpy_ptds(to: u64, from: u64, bytes: usize, kind: c_int) |driver| { copy(driver, to, from, bytes, kind) }

    /// Copies bytes on a stream.
    fn cudaMemcpyAsync | cudaMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, kind: c_int, stream: Handle) |driver| {
        copy_on(driver, to, from, bytes, kind, stream)
    }

    /// Copies rows on the default stream and waits.
    fn cudaMemcpy2D | cudaMemcpy2D_ptds(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: c_int) |driver| {
        forward!(driver.cuMemcpy2D(&Copy2D { from: Side::linear(from, from_pitch), to: Side::linear(to, to_pitch), width, height }))
    }

    /// Copies rows on a stream.
    fn cudaMemcpy2DAsync | cudaMemcpy2DAsync_ptsz(to: u64, to_pitch: usize, from: u64, from_pitch: usize, width: usize, height: usize, _kind: c_int, stream: Handle) |driver| {
        forward!(driver.cuMemcpy2DAsync(&Copy2D { from: Side::linear(from, from_pitch), to: Side::linear(to, to_pitch), width, height }, stream))
    }

    /// Copies rows into an array and waits.
    fn cudaMemcpy2DToArray | cudaMemcpy2DToArray_ptds(to: Handle, x: usize, y: usize, from: u64, pitch: usize, width: usize, height: usize, _kind: c_int) |driver| {
        forward!(driver.cuMemcpy2D(&Copy2D { from: Side::linear(from, pitch), to: Side::array(to, x, y), width, height }))
    }

    /// Copies rows out of an array and waits.
    fn cudaMemcpy2DFromArray | cudaMemcpy2DFromArray_ptds(to: u64, pitch: usize, from: Handle, x: usize, y: usize, width: usize, height: usize, _kind: c_int) |driver| {
        forward!(driver.cuMemcpy2D(&Copy2D { from: Side::array(from, x, y), to: Side::linear(to, pitch), width, height }))
    }

    /// Copies bytes between devices and waits.
    fn cudaMemcpyPeer(to: u64, to_device: c_int, from: u64, from_device: c_int, bytes: usize) |driver| {
        match peers(driver, to_device, from_device) {
            Ok((to_context, from_context)) => forward!(driver.cuMemcpyPeer(to, to_context, from, from_context, bytes)),
            Err(code) => code,
        }
    }

    /// Copies bytes between devices on a stream.
    fn cudaMemcpyPeerAsync(to: u64, to_device: c_int, from: u64, from_device: c_int, bytes: usize, stream: Handle) |driver| {
        match peers(driver, to_device, from_device) {
            Ok((to_context, from_context)) => forward!(driver.cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, stream)),
            Err(code) => code,
        }
    }

    /// Sets bytes on the default stream.
    fn cudaMemset | cudaMemset_ptds(pointer: u64, value: c_int, bytes: usize) |driver| {
        if bytes == 0 { SUCCESS } else { forward!(driver.cuMemsetD8(pointer, value as u8, bytes)) }
    }

    /// Sets bytes, in the order of a stream.
    fn cudaMemsetAsync | cudaMemsetAsync_ptsz(pointer: u64, value: c_int, bytes: usize, stream: Handle) |driver| {
        if bytes == 0 { SUCCESS } else { forward!(driver.cuMemsetD8Async(pointer, value as u8, bytes, stream)) }
    }

    /// Sets rows of bytes on the default stream.
    fn cudaMemset2D | cudaMemset2D_ptds(pointer: u64, pitch: usize, value: c_int, width: usize, height: usize) |driver| {
        forward!(driver.cuMemsetD2D8(pointer, pitch, value as u8, width, height))
    }

    /// Sets rows of bytes on a stream.
    fn cudaMemset2DAsync | cudaMemset2DAsync_ptsz(pointer: u64, pitch: usize, value: c_int, width: usize, height: usize, stream: Handle) |driver| {
        forward!(driver.cuMemsetD2D8Async(pointer, pitch, value as u8, width, height, stream))
    }
}
