//! Virtual memory management: the host's own mappings, recorded.

use std::ffi::c_ulonglong;

use cudarc::driver::sys;
use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, DevicePtr, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::passthrough;

/// `CU_MEM_LOCATION_TYPE_DEVICE`; every other location is memory of the host's.
const DEVICE: u32 = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;

driver_hooks! {
    /// Physical memory, of a device or of the host.
    fn cuMemCreate(
        handle: *mut c_ulonglong, bytes: usize, properties: *const sys::CUmemAllocationProp,
        flags: c_ulonglong,
    ) {
        let on_device = !properties.is_null()
            // SAFETY: the caller's structure; the enum is read as the integer that C has there.
            && unsafe { (&raw const (*properties).location.type_).cast::<u32>().read() } == DEVICE;
        let class = if on_device { Class::Vmm } else { Class::Host };
        // SAFETY: not null where it is of a device.
        let device = on_device.then(|| unsafe { (*properties).location.id });
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        let result = passthrough::forward_on(device, class, bytes as u64, || unsafe {
            real::cuMemCreate(handle, bytes, properties, flags)
        });
        if result == SUCCESS {
            // SAFETY: the driver wrote the handle.
            let handle = unsafe { *handle };
            match device.and_then(|device| u8::try_from(device).ok()) {
                Some(device) => passthrough::allocated_on(device, class, handle, bytes as u64, 0),
                None => passthrough::allocated(class, handle, bytes as u64, 0),
            }
        }
        result
    }
    /// Physical memory ends, once no mapping holds it.
    fn cuMemRelease(handle: c_ulonglong) {
        // SAFETY: as above.
        passthrough::free(handle, 0, || unsafe { real::cuMemRelease(handle) })
    }
    /// Physical memory gets an address.
    fn cuMemMap(
        address: DevicePtr, bytes: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong,
    ) {
        // SAFETY: as above.
        let result = passthrough::forward(Class::VmmMap, bytes as u64, || unsafe {
            real::cuMemMap(address, bytes, offset, handle, flags)
        });
        if result == SUCCESS {
            passthrough::allocated(Class::VmmMap, address, bytes as u64, 0);
        }
        result
    }
    /// An address loses its physical memory.
    fn cuMemUnmap(address: DevicePtr, bytes: usize) {
        // SAFETY: as above.
        passthrough::free(address, 0, || unsafe { real::cuMemUnmap(address, bytes) })
    }
}
