//! Driver functions that the shim calls and does not hook.

use std::ffi::{c_char, c_int, c_void};

use crate::cuda::driver::CUresult;
use crate::hooks::driver::Handle;
use crate::hooks::hook::driver_calls;

driver_calls! {
    fn cuCtxFromGreenCtx(context: *mut Handle, green: Handle);
    fn cuCtxGetCurrent(context: *mut Handle);
    fn cuCtxGetDevice(device: *mut c_int);
    fn cuCtxRecordEvent(context: Handle, event: Handle);
    fn cuCtxWaitEvent(context: Handle, event: Handle);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    fn cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    fn cuDeviceGetMemPool(pool: *mut Handle, device: c_int);
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuEventCreate(event: *mut Handle, flags: u32);
    fn cuEventQuery(event: Handle);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuMemAddressReserve(
        address: *mut u64, bytes: usize, alignment: usize, wished: u64, flags: u64,
    );
    fn cuMemAddressFree(address: u64, bytes: usize);
    fn cuMemSetAccess(address: u64, bytes: usize, access: *const c_void, count: usize);
    fn cuStreamGetCtx(stream: Handle, context: *mut Handle);
    fn cuStreamIsCapturing(stream: Handle, status: *mut c_int);
    fn cuStreamIsCapturing_ptsz(stream: Handle, status: *mut c_int);
    fn cuStreamQuery(stream: Handle);
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
}
