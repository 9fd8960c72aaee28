//! Virtual memory management: records the program's own mappings.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys;
use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, DevicePtr, INVALID_VALUE, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::hooks::driver::pointer;
use crate::memory::limit::{self, Place};
use crate::memory::passthrough::{self, Request};
use crate::memory::physical::{self, DESCRIPTOR};
use crate::memory::{elastic_ranges, mappings, owner, reservations, shared_parts};

/// The driver's `CU_MEM_LOCATION_TYPE_DEVICE`; every other location is memory of the host.
const DEVICE: u32 = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;

driver_hooks! {
    /// Reserves addresses, also for PyTorch's expandable segments.
    fn cuMemAddressReserve(
        address: *mut DevicePtr, bytes: usize, alignment: usize, wished: u64, flags: c_ulonglong,
    ) => reserve, "r9", |caller| {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        let result = unsafe { real::cuMemAddressReserve(address, bytes, alignment, wished, flags) };
        if result == SUCCESS {
            // SAFETY: the driver wrote the address.
            elastic_ranges::reserved(unsafe { *address }, bytes as u64, caller);
        }
        result
    }
    /// Makes physical memory, of a device or of the host.
    fn cuMemCreate(
        handle: *mut c_ulonglong, bytes: usize, properties: *const sys::CUmemAllocationProp,
        flags: c_ulonglong,
    ) => create, "r8", |caller| {
        let on_device = !properties.is_null()
            // SAFETY: the caller's structure; the enum is read as the integer that C has there.
            && unsafe { (&raw const (*properties).location.type_).cast::<u32>().read() } == DEVICE;
        let class = if on_device { Class::Vmm } else { Class::Host };
        // SAFETY: not null where it is of a device.
        let device = on_device.then(|| unsafe { (*properties).location.id });
        // SAFETY: null or the caller's to be written; the caller's structure.
        let promised = || unsafe { elastic_ranges::create(handle, bytes as u64, &*properties, caller) };
        if on_device && let Some(result) = promised() {
            return result;
        }
        let request = Request { device, ..Request::new(class, bytes as u64) };
        // SAFETY: as above.
        let call = || unsafe {
            match on_device {
                true => physical::create_for_program(handle, bytes, properties, flags),
                false => real::cuMemCreate(handle, bytes, properties, flags),
            }
        };
        // SAFETY: the driver wrote the handle.
        passthrough::allocate(request, call, || unsafe { (*handle, bytes as u64) })
    }
    /// Releases physical memory, which is freed once no mapping holds it.
    fn cuMemRelease(handle: c_ulonglong) {
        if elastic_ranges::release(handle) || shared_parts::release(handle) {
            return SUCCESS;
        }
        let was_plain = mappings::released(handle);
        // SAFETY: as above.
        let result = passthrough::free(handle, 0, || unsafe { real::cuMemRelease(handle) });
        if result == SUCCESS {
            limit::give(Place::of_physical(handle));
        } else if was_plain {
            mappings::made_plain_again(handle);
        }
        result
    }
    /// Returns what physical memory was asked for with.
    fn cuMemGetAllocationPropertiesFromHandle(
        properties: *mut sys::CUmemAllocationProp, handle: c_ulonglong,
    ) {
        // SAFETY: null, or the caller's to be written.
        if unsafe { elastic_ranges::describe(handle, properties) } {
            return SUCCESS;
        }
        // SAFETY: as above.
        let result = unsafe { real::cuMemGetAllocationPropertiesFromHandle(properties, handle) };
        if result == SUCCESS && mappings::is_plain(handle) {
            // SAFETY: the driver has just written it.
            unsafe { (*properties).requestedHandleTypes.0 &= !DESCRIPTOR };
        }
        result
    }
    /// Makes a handle of physical memory for another process, of a kind that was asked for.
    fn cuMemExportToShareableHandle(
        shared: *mut c_void, handle: c_ulonglong, kind: c_uint, flags: c_ulonglong,
    ) {
        if kind == DESCRIPTOR && mappings::is_plain(handle) {
            return INVALID_VALUE;
        }
        // SAFETY: null, or the caller's to be written.
        if let Some(result) = unsafe { elastic_ranges::export(shared, handle, kind) } {
            return result;
        }
        // SAFETY: as above.
        unsafe { real::cuMemExportToShareableHandle(shared, handle, kind, flags) }
    }
    /// Makes a handle of physical memory of another process.
    fn cuMemImportFromShareableHandle(
        handle: *mut c_ulonglong, shared: *mut c_void, kind: c_uint,
    ) {
        let descriptor = || (kind == DESCRIPTOR).then(|| shared.addr() as c_int);
        let part = (!handle.is_null()).then(descriptor).flatten();
        if let Some(part) = part.and_then(shared_parts::import) {
            // SAFETY: not null, and the caller's to be written.
            unsafe { handle.write(part) };
            return SUCCESS;
        }
        // SAFETY: as above.
        unsafe { real::cuMemImportFromShareableHandle(handle, shared, kind) }
    }
    /// Frees addresses of the program's own reservation.
    fn cuMemAddressFree(address: DevicePtr, bytes: usize) {
        if let Err(error) = elastic_ranges::unreserved(address) {
            return error;
        }
        // SAFETY: as above.
        elsewhere(address, bytes, || unsafe { real::cuMemAddressFree(address, bytes) })
    }
    /// Maps physical memory at an address.
    fn cuMemMap(
        address: DevicePtr, bytes: usize, offset: usize, handle: c_ulonglong, flags: c_ulonglong,
    ) {
        if let Some(result) = elastic_ranges::map(address, (bytes as u64, offset as u64), handle) {
            return result;
        }
        let source = Some(handle);
        let request = Request { source, ..Request::new(Class::VmmMap, bytes as u64) };
        let call = || match shared_parts::map(address, bytes as u64, handle) {
            Some(result) => result,
            // SAFETY: as above.
            None => unsafe { real::cuMemMap(address, bytes, offset, handle, flags) },
        };
        elsewhere(address, bytes, || {
            let result = passthrough::allocate(request, call, || (address, bytes as u64));
            if result == SUCCESS {
                mappings::mapped(address, bytes as u64, handle);
            }
            result
        })
    }
    /// Unmaps physical memory from an address.
    fn cuMemUnmap(address: DevicePtr, bytes: usize) {
        if let Some(result) = elastic_ranges::unmap(address, bytes as u64) {
            return result;
        }
        elsewhere(address, bytes, || passthrough::unmap(address, bytes as u64, || {
            // SAFETY: as above.
            let driver = || unsafe { real::cuMemUnmap(address, bytes) };
            shared_parts::unmap(address, bytes as u64).unwrap_or_else(driver)
        }))
    }
    /// Allows or forbids devices to use memory that is mapped at an address.
    fn cuMemSetAccess(
        address: DevicePtr, bytes: usize, access: *const sys::CUmemAccessDesc, count: usize,
    ) {
        // SAFETY: the caller's list.
        if let Some(result) = unsafe { elastic_ranges::allow(address, access, count) } {
            return result;
        }
        // SAFETY: as above.
        elsewhere(address, bytes, || unsafe { real::cuMemSetAccess(address, bytes, access, count) })
    }
    /// Returns the access of a device to mapped memory. For memory that the program did not map,
    /// the driver returns 0.
    fn cuMemGetAccess(
        flags: *mut c_ulonglong, location: *const sys::CUmemLocation, address: DevicePtr,
    ) {
        let owner = owner::of(address);
        // SAFETY: as above, but for the address.
        let result = pointer::ask(&owner, address, |address| unsafe {
            real::cuMemGetAccess(flags, location, address)
        });
        if result == SUCCESS && owner.is_ours() && !elastic_ranges::has(address) {
            // SAFETY: the driver has just written it.
            unsafe { *flags = 0 };
        }
        result
    }
}

/// Calls the driver for mapped memory of the program. The memory of `cudaMalloc` is not such
/// memory.
fn elsewhere(address: DevicePtr, bytes: usize, call: impl FnOnce() -> CUresult) -> CUresult {
    match reservations::overlap(address, bytes as u64) {
        true => INVALID_VALUE,
        false => call(),
    }
}
