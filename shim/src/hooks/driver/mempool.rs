//! Pool objects: the driver's own, which stay empty, each with a pool of this library beside it.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys;
use gpushim_alloc::pool::Settings;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::registry::{self, Access, RegisteredPool};
use crate::memory::{driver_pools, pool_life, threshold};

/// The driver's `CU_MEMPOOL_ATTR_…`, by number.
const REUSE_ALLOW_INTERNAL_DEPENDENCIES: c_uint = 3;
const RELEASE_THRESHOLD: c_uint = 4;
const RESERVED_MEM_CURRENT: c_uint = 5;
const RESERVED_MEM_HIGH: c_uint = 6;
const USED_MEM_CURRENT: c_uint = 7;
const USED_MEM_HIGH: c_uint = 8;

/// The driver's `CU_MEM_LOCATION_TYPE_DEVICE` and `CU_MEM_ALLOCATION_TYPE_PINNED`.
const DEVICE: u32 = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32;
const PINNED: u32 = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u32;

/// Finds the pool for a handle that the driver just accepted. A device's default pool is registered
/// here.
fn ours(pool: Handle) -> Option<&'static RegisteredPool> {
    if let Some(entry) = registry::of(pool as u64) {
        return Some(entry);
    }
    let mut count = 0;
    // SAFETY: `count` is ours to write.
    if thread::call(|| unsafe { real::cuDeviceGetCount(&mut count) }) != SUCCESS {
        return None;
    }
    let device = (0..count).find(|device| {
        let mut default = std::ptr::null_mut();
        // SAFETY: `default` is ours to write.
        let asked =
            thread::call(|| unsafe { real::cuDeviceGetDefaultMemPool(&mut default, *device) });
        asked == SUCCESS && default == pool
    })?;
    pool_life::default(device, pool as u64)
}

/// Registers a pool that the driver just made, if this library can serve it. Pools whose memory can
/// leave the process, and pools of host memory, stay the driver's.
///
/// # Safety
/// `properties` is the structure that the driver just read.
unsafe fn created(pool: Handle, properties: *const sys::CUmemPoolProps) {
    // SAFETY: the driver read the same fields; the enums are read as the integers that C has there.
    let (kind, handles, location, device, most) = unsafe {
        (
            (&raw const (*properties).allocType).cast::<u32>().read(),
            (&raw const (*properties).handleTypes).cast::<u32>().read(),
            (&raw const (*properties).location.type_)
                .cast::<u32>()
                .read(),
            (&raw const (*properties).location)
                .cast::<c_int>()
                .add(1)
                .read(),
            (*properties).maxSize,
        )
    };
    if kind == PINNED && handles == 0 && location == DEVICE {
        let settings = Settings {
            max_size: most as u64,
            ..Settings::default()
        };
        pool_life::add_of_streams(pool as u64, device, settings);
    } else if kind != PINNED || location != DEVICE {
        driver_pools::made_of_host(pool as u64);
    }
}

/// Adds the figures of this library's pool to the driver's figures, which are 0 except for graphs.
///
/// # Safety
/// `value` is the value that the driver just wrote for this attribute.
unsafe fn amend(entry: &RegisteredPool, attribute: c_uint, value: *mut c_void) {
    let stats = entry.pool.stats();
    let more = match attribute {
        RESERVED_MEM_CURRENT => stats.reserved_on_streams(),
        RESERVED_MEM_HIGH => stats.peak_reserved_on_streams(),
        USED_MEM_CURRENT => stats.requested_on_streams(),
        USED_MEM_HIGH => stats.peak_requested_on_streams(),
        _ => return,
    };
    // SAFETY: these attributes are 64-bit integers, at an address that the driver could write.
    unsafe {
        let value = value.cast::<u64>();
        value.write_unaligned(value.read_unaligned() + more);
    }
}

/// Changes this library's pool as the driver changed its own.
///
/// # Safety
/// `value` is the value that the driver just read for this attribute.
unsafe fn set(entry: &RegisteredPool, attribute: c_uint, value: *const c_void) {
    match attribute {
        RELEASE_THRESHOLD => {
            // SAFETY: this attribute is a 64-bit integer.
            entry
                .pool
                .set_threshold(unsafe { value.cast::<u64>().read_unaligned() });
        }
        REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            // SAFETY: this attribute is an int.
            entry
                .pool
                .set_orders(unsafe { value.cast::<c_int>().read_unaligned() } != 0);
        }
        RESERVED_MEM_HIGH => entry.pool.reset_peak_reserved(),
        USED_MEM_HIGH => entry.pool.reset_peak_requested(),
        _ => {}
    }
}

driver_hooks! {
    /// Makes a pool, with one of this library beside it.
    fn cuMemPoolCreate(pool: *mut Handle, properties: *const sys::CUmemPoolProps) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        let result = unsafe { real::cuMemPoolCreate(pool, properties) };
        if result == SUCCESS {
            // SAFETY: the driver wrote the one and read the other.
            unsafe { created(*pool, properties) };
        }
        result
    }
    /// Destroys a pool, whose blocks live on until they are freed.
    fn cuMemPoolDestroy(pool: Handle) {
        // SAFETY: as above.
        let call = || unsafe { real::cuMemPoolDestroy(pool) };
        let result = driver_pools::destroy(pool as u64, call);
        if result == SUCCESS {
            pool_life::destroyed(pool as u64);
        }
        result
    }
    /// Frees the memory that a pool holds beyond `keep` bytes.
    fn cuMemPoolTrimTo(pool: Handle, keep: usize) {
        // SAFETY: as above.
        let result = unsafe { real::cuMemPoolTrimTo(pool, keep) };
        if result == SUCCESS
            && let Some(entry) = registry::of(pool as u64)
        {
            threshold::trim_to(entry, keep as u64);
        }
        result
    }
    /// Sets an attribute of a pool.
    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void) {
        // SAFETY: as above.
        let result = unsafe { real::cuMemPoolSetAttribute(pool, attribute, value) };
        if result == SUCCESS
            && let Some(entry) = ours(pool)
        {
            // SAFETY: the driver read the value.
            unsafe { set(entry, attribute, value) };
        }
        result
    }
    /// Returns an attribute of a pool.
    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_uint, value: *mut c_void) {
        // SAFETY: as above.
        let result = unsafe { real::cuMemPoolGetAttribute(pool, attribute, value) };
        if result == SUCCESS
            && let Some(entry) = registry::of(pool as u64)
        {
            // SAFETY: the driver wrote the value.
            unsafe { amend(entry, attribute, value) };
        }
        result
    }
    /// Allows or forbids other devices to use a pool's memory.
    fn cuMemPoolSetAccess(pool: Handle, map: *const sys::CUmemAccessDesc, count: usize) {
        // SAFETY: as above.
        let result = unsafe { real::cuMemPoolSetAccess(pool, map, count) };
        if result == SUCCESS
            && let Some(entry) = ours(pool)
        {
            // SAFETY: the driver read as many descriptions; each is three integers in C.
            let map = unsafe { std::slice::from_raw_parts(map.cast::<[i32; 3]>(), count) };
            let changed = entry.set_access(Access::Program, |devices| {
                for &[_, device, flags] in map {
                    devices.retain(|known| *known != device);
                    if flags != 0 {
                        devices.push(device);
                    }
                }
            });
            return changed.err().unwrap_or(SUCCESS);
        }
        result
    }
    /// Makes a device allocate from another pool.
    fn cuDeviceSetMemPool(device: c_int, pool: Handle) {
        // SAFETY: as above.
        let result = unsafe { real::cuDeviceSetMemPool(device, pool) };
        registry::changed();
        result
    }
    /// Makes a location allocate from another pool (CUDA 13).
    fn cuMemSetMemPool(location: *mut c_void, kind: c_uint, pool: Handle) {
        // SAFETY: as above.
        let result = unsafe { real::cuMemSetMemPool(location, kind, pool) };
        registry::changed();
        result
    }
}
