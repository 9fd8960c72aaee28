//! Physical memory of a device or of the host, mapped or not.

use cudarc::driver::sys;

use gpushim_alloc::Context;
use gpushim_config::Elastic;

use crate::base::{settings, thread};
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, OUT_OF_MEMORY, SUCCESS, check};
use crate::cuda::{context, device, devices, primary};
use crate::memory::limit::{self, Place};
use crate::memory::{mappings, policy};

/// The driver's `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub const DESCRIPTOR: u32 =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

/// Returns a context of the device: the current one, or the primary one.
pub fn context_on(device: i32) -> Option<Context> {
    let is_there = |context: &Context| device::driver().ordinal_of(*context) == Ok(device);
    context::current()
        .filter(is_there)
        .or_else(|| primary::of(device))
}

/// Runs a call in a context of the device, if there is one. The call must make nothing that belongs
/// to a context.
pub fn on_device<R>(device: i32, f: impl FnOnce() -> R) -> Result<R, CUresult> {
    match context_on(device) {
        Some(context) => context::with(context, f),
        None => Ok(f()),
    }
}

/// True if a device's memory is made so that other processes can map it: if `cudaMalloc` is served
/// in pages or elastic segments. Natively, memory that serves streams alone has no handles for
/// other processes either.
pub fn is_shareable(device: i32) -> bool {
    let is_elastic = settings::config().elastic != Elastic::Off;
    (policy::is_paged(device) || is_elastic) && devices::has_descriptors(device)
}

/// Describes memory of a device.
pub fn properties_on(device: i32) -> sys::CUmemAllocationProp {
    // SAFETY: a structure of integers; zero is a value of each field that is not set below, and
    // the two enums are set to values that they have.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties
}

/// Makes physical memory of a device and returns its handle.
///
/// # Errors
/// The driver's; out of memory beyond the limit.
pub fn create(device: i32, bytes: u64) -> Result<u64, CUresult> {
    let mut properties = properties_on(device);
    properties.allocFlags.gpuDirectRDMACapable = devices::is_rdma_capable(device).into();
    if is_shareable(device) {
        properties.requestedHandleTypes.0 = DESCRIPTOR;
    }
    let claim = limit::reserve(device, bytes).ok_or(OUT_OF_MEMORY)?;
    let mut handle = 0;
    let create = || {
        // SAFETY: `handle` is ours to write; the properties live through the call.
        on_device(device, || unsafe {
            real::cuMemCreate(&mut handle, bytes as usize, &properties, 0)
        })
    };
    check(thread::timed(create)?)?;
    claim.keep(Place::of_physical(handle), bytes);
    Ok(handle)
}

/// Makes physical memory of a device as the program asks, but with descriptors: other processes can
/// then be given it.
///
/// # Safety
/// `properties` is not null; the contract of `cuMemCreate`.
pub unsafe fn create_for_program(
    handle: *mut u64,
    bytes: usize,
    properties: *const sys::CUmemAllocationProp,
    flags: u64,
) -> CUresult {
    // SAFETY: not null, and the caller's structure.
    let mut asked = unsafe { properties.read() };
    let special = asked.allocFlags.usage != 0 || asked.allocFlags.compressionType != 0;
    let has_it = asked.requestedHandleTypes.0 & DESCRIPTOR != 0;
    if !policy::is_off() && !special && !has_it && devices::has_descriptors(asked.location.id) {
        asked.requestedHandleTypes.0 |= DESCRIPTOR;
        // SAFETY: the caller's arguments, but for the properties, which live through the call.
        let result = unsafe { real::cuMemCreate(handle, bytes, &asked, flags) };
        if result == SUCCESS {
            // SAFETY: the driver wrote the handle.
            mappings::made_plain(unsafe { *handle });
        }
        // Another refusal may be due to the descriptors.
        if matches!(result, SUCCESS | OUT_OF_MEMORY) {
            return result;
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::cuMemCreate(handle, bytes, properties, flags) }
}

/// Makes physical memory on a NUMA node of the host, for a device, and returns its handle.
///
/// # Errors
/// The driver's.
pub fn create_on_host(device: i32, node: i32, bytes: u64) -> Result<u64, CUresult> {
    let mut properties = properties_on(node);
    properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA;
    let mut handle = 0;
    let create = || {
        // SAFETY: `handle` is ours to write; the properties live through the call.
        on_device(device, || unsafe {
            real::cuMemCreate(&mut handle, bytes as usize, &properties, 0)
        })
    };
    check(thread::timed(create)?)?;
    Ok(handle)
}

/// Releases physical memory that [`create_on_host`] made and that is mapped nowhere.
pub fn destroy_on_host(handle: u64) {
    // A refusal means that the memory is gone already.
    // SAFETY: the caller made the handle, and gives it back once.
    let _ = thread::timed(|| unsafe { real::cuMemRelease(handle) });
}

/// Releases physical memory that [`create`] made and that is mapped nowhere.
pub fn destroy(handle: u64) {
    // A refusal means that the memory is gone with its device already.
    // SAFETY: the pool made the handle, and gives it back once.
    let _ = thread::timed(|| unsafe { real::cuMemRelease(handle) });
    limit::give(Place::of_physical(handle));
}
