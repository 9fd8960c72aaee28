//! Types and results of the driver API.
//!
//! Handles and structures are opaque pointers unless a field is read: the driver checks them.

use std::ffi::c_void;

/// An opaque handle of the driver's.
pub type Handle = *mut c_void;
/// `CUdeviceptr`.
pub type DevicePtr = u64;

/// An address that no memory has.
pub const NOWHERE: DevicePtr = 1;

/// The driver API's result type; 0 is success. A plain integer: hosts may meet newer codes.
pub type CUresult = u32;
/// `CUDA_SUCCESS`.
pub const SUCCESS: CUresult = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub const INVALID_VALUE: CUresult = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: CUresult = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: CUresult = 201;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
pub const CONTEXT_IS_DESTROYED: CUresult = 709;
/// `CUDA_ERROR_STUB_LIBRARY`: what the driver library of CUDA's toolkit says, behind which is no driver.
pub const STUB_LIBRARY: CUresult = 34;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
pub const CAPTURE_UNSUPPORTED: CUresult = 900;
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
pub const CAPTURE_INVALIDATED: CUresult = 901;
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`.
pub const CAPTURE_IMPLICIT: CUresult = 906;
/// `CUDA_ERROR_NOT_FOUND`.
pub const NOT_FOUND: CUresult = 500;

/// A driver's answer as a result.
pub fn check(result: CUresult) -> Result<(), CUresult> {
    if result == SUCCESS {
        Ok(())
    } else {
        Err(result)
    }
}
