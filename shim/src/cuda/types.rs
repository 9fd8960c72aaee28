//! Types and results of the driver API.
//!
//! Handles and structures are opaque pointers unless a field is read: the driver checks them.

use std::ffi::c_void;

/// An opaque handle of the driver.
pub type Handle = *mut c_void;
/// The driver's `CUdeviceptr`.
pub type DevicePtr = u64;

/// An address that no memory has.
pub const NOWHERE: DevicePtr = 1;

/// The driver API's result type; 0 is success. A plain integer, because newer drivers have more
/// codes.
pub type CUresult = u32;
/// The driver's `CUDA_SUCCESS`.
pub const SUCCESS: CUresult = 0;
/// The driver's `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: CUresult = 1;
/// The driver's `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: CUresult = 2;
/// The driver's `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: CUresult = 201;
/// The driver's `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
pub const CONTEXT_IS_DESTROYED: CUresult = 709;
/// The driver's `CUDA_ERROR_STUB_LIBRARY`: the answer of the toolkit's driver library, which has no
/// driver behind it.
pub const STUB_LIBRARY: CUresult = 34;
/// The driver's `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
pub const CAPTURE_UNSUPPORTED: CUresult = 900;
/// The driver's `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
pub const CAPTURE_INVALIDATED: CUresult = 901;
/// The driver's `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`.
pub const CAPTURE_IMPLICIT: CUresult = 906;
/// The driver's `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: CUresult = 500;
/// `CUDA_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: CUresult = 801;
/// The driver's `CUDA_ERROR_NOT_PERMITTED`.
pub const NOT_PERMITTED: CUresult = 800;

/// Converts a driver's answer to a result.
pub fn check(result: CUresult) -> Result<(), CUresult> {
    if result == SUCCESS {
        Ok(())
    } else {
        Err(result)
    }
}
