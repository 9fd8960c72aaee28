//! Devices: their total memory, as far as the limit allows.

use std::ffi::c_int;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::limit;

driver_hooks! {
    /// Returns the bytes of a device: the limit, if that is less. PyTorch's fraction is a part of
    /// this figure.
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: c_int) {
        // SAFETY: the caller's arguments, unchanged.
        let result = unsafe { real::cuDeviceTotalMem_v2(bytes, device) };
        // SAFETY: the driver accepted the pointer; null is checked.
        if result == SUCCESS && let Some((bytes, limit)) = unsafe { bytes.as_mut() }.zip(limit::limit()) {
            *bytes = (*bytes).min(limit as usize);
        }
        result
    }
}
