//! Pools of stream-ordered memory. The structures and attribute numbers are the driver's.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::Handle;

entries! {
    /// The pool that the driver made for the device.
    fn cudaDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int) |driver| { forward!(driver.cuDeviceGetDefaultMemPool(pool, device)) }

    /// The pool that `cudaMallocAsync` takes from.
    fn cudaDeviceGetMemPool(pool: *mut Handle, device: c_int) |driver| { forward!(driver.cuDeviceGetMemPool(pool, device)) }

    /// Chooses that pool.
    fn cudaDeviceSetMemPool(device: c_int, pool: Handle) |driver| { forward!(driver.cuDeviceSetMemPool(device, pool)) }

    /// A new pool.
    fn cudaMemPoolCreate(pool: *mut Handle, properties: *const c_void) |driver| { forward!(driver.cuMemPoolCreate(pool, properties)) }

    /// Destroys a pool, at the latest when its last block is freed.
    fn cudaMemPoolDestroy(pool: Handle) |driver| { forward!(driver.cuMemPoolDestroy(pool)) }

    /// Gives unused memory back until this many bytes are left.
    fn cudaMemPoolTrimTo(pool: Handle, keep: usize) |driver| { forward!(driver.cuMemPoolTrimTo(pool, keep)) }

    /// An attribute.
    fn cudaMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuMemPoolGetAttribute(pool, attribute, value))
    }

    /// Sets an attribute.
    fn cudaMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuMemPoolSetAttribute(pool, attribute, value))
    }

    /// Which devices may use the pool's memory.
    fn cudaMemPoolSetAccess(pool: Handle, descriptors: *const c_void, count: usize) |driver| {
        forward!(driver.cuMemPoolSetAccess(pool, descriptors, count))
    }

    /// Whether a device may.
    fn cudaMemPoolGetAccess(flags: *mut c_int, pool: Handle, location: *mut c_void) |driver| {
        forward!(driver.cuMemPoolGetAccess(flags, pool, location))
    }

    /// A handle of the pool for another process.
    fn cudaMemPoolExportToShareableHandle(handle: *mut c_void, pool: Handle, kind: c_int, flags: c_uint) |driver| {
        forward!(driver.cuMemPoolExportToShareableHandle(handle, pool, kind, u64::from(flags)))
    }

    /// A pool from another process's handle.
    fn cudaMemPoolImportFromShareableHandle(pool: *mut Handle, handle: *mut c_void, kind: c_int, flags: c_uint) |driver| {
        forward!(driver.cuMemPoolImportFromShareableHandle(pool, handle, kind, u64::from(flags)))
    }

    /// A block's description for another process.
    fn cudaMemPoolExportPointer(data: *mut c_void, pointer: u64) |driver| { forward!(driver.cuMemPoolExportPointer(data, pointer)) }

    /// A block from another process's description.
    fn cudaMemPoolImportPointer(pointer: *mut u64, pool: Handle, data: *mut c_void) |driver| {
        forward!(driver.cuMemPoolImportPointer(pointer, pool, data))
    }

    /// The pool in use for a location and kind of memory (CUDA 13).
    fn cudaMemGetMemPool(pool: *mut Handle, location: *mut c_void, kind: c_int) |driver| {
        forward!(driver.cuMemGetMemPool(pool, location, kind))
    }

    /// The pool that the driver made for a location and kind of memory (CUDA 13).
    fn cudaMemGetDefaultMemPool(pool: *mut Handle, location: *mut c_void, kind: c_int) |driver| {
        forward!(driver.cuMemGetDefaultMemPool(pool, location, kind))
    }

    /// Chooses the pool for a location and kind of memory (CUDA 13).
    fn cudaMemSetMemPool(location: *mut c_void, kind: c_int, pool: Handle) |driver| {
        forward!(driver.cuMemSetMemPool(location, kind, pool))
    }
}
