//! Functions that code compiled by nvcc calls at its start and for kernels.
//!
//! No device runs kernels here. Programs with kernels start, and a launch returns
//! `cudaErrorInvalidDeviceFunction`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::driver::{Code, Handle};

/// `cudaErrorInvalidDeviceFunction`.
const INVALID_FUNCTION: Code = 98;

/// Three dimensions (`dim3`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

entries! {
    /// Refuses to launch a kernel: none is known here.
    fn cudaLaunchKernel | cudaLaunchKernel_ptsz(
        _function: *const c_void,
        _grid: Dim3,
        _block: Dim3,
        _arguments: *mut *mut c_void,
        _shared: usize,
        _stream: Handle,
    ) |_driver| { INVALID_FUNCTION }
}

/// Registers a module of device code. Its handle only needs to be some address.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(binary: *mut c_void) -> *mut *mut c_void {
    Box::into_raw(Box::new(binary))
}

/// Ends the registration of a module's functions.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_module: *mut *mut c_void) {}

/// Unregisters a module of device code.
///
/// # Safety
/// `module` came from `__cudaRegisterFatBinary` and is not used again.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaUnregisterFatBinary(module: *mut *mut c_void) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(module) });
}

/// Accepts a kernel of the module without effect.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "C" fn __cudaRegisterFunction(
    _module: *mut *mut c_void,
    _host: *const c_char,
    _device: *mut c_char,
    _name: *const c_char,
    _threads: c_int,
    _thread: *mut c_void,
    _block_id: *mut c_void,
    _block: *mut c_void,
    _grid: *mut c_void,
    _warp: *mut c_int,
) {
}

/// Accepts a variable of the module without effect.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "C" fn __cudaRegisterVar(
    _module: *mut *mut c_void,
    _host: *mut c_char,
    _device: *mut c_char,
    _name: *const c_char,
    _external: c_int,
    _size: usize,
    _constant: c_int,
    _global: c_int,
) {
}
