//! Pools of stream-ordered memory. The structures and attribute numbers are the driver's.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::Handle;

entries! {
    /// Returns the driver's own pool of a device.
    fn cudaDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int) |driver| { forward!(driver.cuDeviceGetDefaultMemPool(pool, device)) }

    /// Returns the pool that `cudaMallocAsync` allocates from.
    fn cudaDeviceGetMemPool(pool: *mut Handle, device: c_int) |driver| { forward!(driver.cuDeviceGetMemPool(pool, device)) }

    /// Sets the pool that `cudaMallocAsync` allocates from.
    fn cudaDeviceSetMemPool(device: c_int, pool: Handle) |driver| { forward!(driver.cuDeviceSetMemPool(device, pool)) }

    fn cudaMemPoolCreate(pool: *mut Handle, properties: *const c_void) |driver| { forward!(driver.cuMemPoolCreate(pool, properties)) }

    /// Destroys a pool. It lives until its last block is freed.
    fn cudaMemPoolDestroy(pool: Handle) |driver| { forward!(driver.cuMemPoolDestroy(pool)) }

    /// Frees unused memory until at most `keep` bytes are held.
    fn cudaMemPoolTrimTo(pool: Handle, keep: usize) |driver| { forward!(driver.cuMemPoolTrimTo(pool, keep)) }

    /// Returns an attribute of a pool.
    fn cudaMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuMemPoolGetAttribute(pool, attribute, value))
    }

    /// Sets an attribute of a pool.
    fn cudaMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void) |driver| {
        forward!(driver.cuMemPoolSetAttribute(pool, attribute, value))
    }

    /// Sets the devices that may use a pool's memory.
    fn cudaMemPoolSetAccess(pool: Handle, descriptors: *const c_void, count: usize) |driver| {
        forward!(driver.cuMemPoolSetAccess(pool, descriptors, count))
    }

    /// Returns the access of a location to a pool's memory.
    fn cudaMemPoolGetAccess(flags: *mut c_int, pool: Handle, location: *mut c_void) |driver| {
        forward!(driver.cuMemPoolGetAccess(flags, pool, location))
    }

    /// Returns a handle of the pool for a peer process.
    fn cudaMemPoolExportToShareableHandle(handle: *mut c_void, pool: Handle, kind: c_int, flags: c_uint) |driver| {
        forward!(driver.cuMemPoolExportToShareableHandle(handle, pool, kind, u64::from(flags)))
    }

    /// Makes a pool from a peer process's handle.
    fn cudaMemPoolImportFromShareableHandle(pool: *mut Handle, handle: *mut c_void, kind: c_int, flags: c_uint) |driver| {
        forward!(driver.cuMemPoolImportFromShareableHandle(pool, handle, kind, u64::from(flags)))
    }

    /// Writes a block's description for a peer process.
    fn cudaMemPoolExportPointer(data: *mut c_void, pointer: u64) |driver| { forward!(driver.cuMemPoolExportPointer(data, pointer)) }

    /// Returns a block from a peer process's description.
    fn cudaMemPoolImportPointer(pointer: *mut u64, pool: Handle, data: *mut c_void) |driver| {
        forward!(driver.cuMemPoolImportPointer(pointer, pool, data))
    }

    /// Returns the pool in use for a location and kind of memory (CUDA 13).
    fn cudaMemGetMemPool(pool: *mut Handle, location: *mut c_void, kind: c_int) |driver| {
        forward!(driver.cuMemGetMemPool(pool, location, kind))
    }

    /// Returns the driver's own pool for a location and kind of memory (CUDA 13).
    fn cudaMemGetDefaultMemPool(pool: *mut Handle, location: *mut c_void, kind: c_int) |driver| {
        forward!(driver.cuMemGetDefaultMemPool(pool, location, kind))
    }

    /// Sets the pool in use for a location and kind of memory (CUDA 13).
    fn cudaMemSetMemPool(location: *mut c_void, kind: c_int, pool: Handle) |driver| {
        forward!(driver.cuMemSetMemPool(location, kind, pool))
    }
}
