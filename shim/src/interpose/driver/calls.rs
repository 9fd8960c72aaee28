//! Driver functions that the shim calls and does not hook.

use std::ffi::{c_char, c_int};

use super::Handle;
use crate::driver::CUresult;
use crate::interpose::hook::driver_calls;

driver_calls! {
    fn cuCtxGetCurrent(context: *mut Handle);
    fn cuCtxGetDevice(device: *mut c_int);
    fn cuCtxRecordEvent(context: Handle, event: Handle);
    fn cuCtxWaitEvent(context: Handle, event: Handle);
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut u32, active: *mut c_int);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuEventCreate(event: *mut Handle, flags: u32);
    fn cuEventQuery(event: Handle);
    fn cuEventSynchronize(event: Handle);
    fn cuStreamIsCapturing(stream: Handle, status: *mut c_int);
    fn cuStreamIsCapturing_ptsz(stream: Handle, status: *mut c_int);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
}
