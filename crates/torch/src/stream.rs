//! PyTorch's streams (`c10/core/Stream.h`, `c10/cuda/CUDAStream.h`). Both functions are exported by
//! libc10_cuda.so, with these signatures since PyTorch 1.13.

use std::ffi::CStr;

/// PyTorch's `c10::cuda::CUDAStream`: the device, and a number from PyTorch; 0 is the default
/// stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CudaStream {
    /// PyTorch's `c10::DeviceType`.
    pub kind: i8,
    /// Ordinal from 0, as CUDA counts devices in this process.
    pub device: i8,
    /// PyTorch's number, which no other stream of the device has.
    pub id: i64,
}

/// Function that returns the calling thread's current stream on a device.
pub type Current = unsafe extern "C" fn(i8) -> CudaStream;
/// Function that returns the driver's handle of a stream.
pub type Handle = unsafe extern "C" fn(*const CudaStream) -> u64;

/// Name of `c10::cuda::getCurrentCUDAStream(c10::DeviceIndex)`, a [`Current`].
pub const CURRENT: &CStr = c"_ZN3c104cuda20getCurrentCUDAStreamEa";
/// Name of `c10::cuda::CUDAStream::stream() const`, a [`Handle`].
pub const HANDLE: &CStr = c"_ZNK3c104cuda10CUDAStream6streamEv";
