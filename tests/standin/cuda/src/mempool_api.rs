//! Driver functions for stream-ordered allocation.

use crate::abi::{In, MemLocation, MemPoolProps, Out};
use crate::api::Via;
use crate::capture;
use crate::codes::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::mempool::{self, HOST};
use crate::state::{State, lock};
use crate::vmm_api::MemAccess;

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: u32 = 1;

fn allocate(via: Via, address: Out<u64>, bytes: usize, pool: Option<u64>, stream: u64) -> Outcome {
    let mut state = lock()?;
    let key = state.stream(via, stream)?;
    address.required()?;
    // A failed call leaves null in the result.
    address.put(0)?;
    if let Some(pool) = pool {
        state.mempools.get(pool)?;
    }
    address.put(mempool::allocate(&mut state, pool, bytes as u64, key)?)
}

fn get(state: &mut State, pool: u64, attribute: u32, value: Out<u64>) -> Outcome {
    let pool = state.mempools.get(pool)?;
    value.required()?;
    match attribute {
        1..=3 => {
            for (index, byte) in pool.reuse[attribute as usize - 1]
                .to_ne_bytes()
                .into_iter()
                .enumerate()
            {
                value.cast::<u8>().put_at(index, byte);
            }
            Ok(())
        }
        4 => value.put(pool.threshold),
        5 | 6 => value.put(pool.reserved[attribute as usize - 5]),
        7 | 8 => value.put(pool.used[attribute as usize - 7]),
        _ => Err(INVALID_VALUE),
    }
}

fn set(state: &mut State, pool: u64, attribute: u32, value: In<u64>) -> Outcome {
    let pool = state.mempools.get(pool)?;
    match attribute {
        1..=3 => pool.reuse[attribute as usize - 1] = value.cast::<i32>().get()?,
        4 => pool.threshold = value.get()?,
        // High-water marks can only be reset.
        6 if value.get()? == 0 => pool.reserved[1] = pool.reserved[0],
        8 if value.get()? == 0 => pool.used[1] = pool.used[0],
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}

/// Returns the device of a location that pools serve; [`HOST`] stands for host memory.
fn device_of(state: &mut State, location: MemLocation, kind: u32) -> Outcome<i32> {
    match (kind, location.kind) {
        (1 | 2, DEVICE) => ordinal(state, location.id),
        (1 | 2, 2 | 3) => Ok(HOST),
        _ => Err(INVALID_VALUE),
    }
}

/// Checks a device as the pool functions do: an invalid one is an invalid value.
fn ordinal(state: &mut State, device: i32) -> Outcome<i32> {
    state
        .device(device)
        .map(|_| device)
        .map_err(|_| INVALID_VALUE)
}

api! {
    /// Allocates on a stream from the device's current pool.
    cuMemAllocAsync 11020 => fn cuMemAllocAsync | cuMemAllocAsync_ptsz[via](address: Out<u64>, bytes: usize, stream: u64) {
        allocate(via, address, bytes, None, stream)
    }
    /// Allocates on a stream from a pool.
    cuMemAllocFromPoolAsync 11020 => fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz[via](address: Out<u64>, bytes: usize, pool: u64, stream: u64) {
        allocate(via, address, bytes, Some(pool), stream)
    }
    /// Frees memory on a stream.
    cuMemFreeAsync 11020 => fn cuMemFreeAsync | cuMemFreeAsync_ptsz[via](address: u64, stream: u64) {
        let mut state = lock()?;
        let key = state.stream(via, stream)?;
        mempool::free(&mut state, address, key)
    }
    /// Returns the driver's own pool of a device.
    cuDeviceGetDefaultMemPool 11020 => fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) {
        let mut state = lock()?;
        state.device(device)?;
        pool.put(state.mempools.standard(device))
    }
    /// Returns the pool that a device's allocations come from.
    cuDeviceGetMemPool 11020 => fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) {
        let mut state = lock()?;
        ordinal(&mut state, device)?;
        pool.put(state.mempools.current(device))
    }
    /// Sets the pool that a device's allocations come from.
    cuDeviceSetMemPool 11020 => fn cuDeviceSetMemPool(device: i32, pool: u64) {
        let mut state = lock()?;
        ordinal(&mut state, device)?;
        state.mempools.choose(device, pool)
    }
    /// Returns the pool in use for a location.
    cuMemGetMemPool 13000 => fn cuMemGetMemPool(pool: Out<u64>, location: Out<MemLocation>, kind: u32) {
        let mut state = lock()?;
        let device = device_of(&mut state, location.get()?, kind)?;
        pool.put(state.mempools.current(device))
    }
    /// Returns the driver's own pool of a location.
    cuMemGetDefaultMemPool 13000 => fn cuMemGetDefaultMemPool(pool: Out<u64>, location: Out<MemLocation>, kind: u32) {
        let mut state = lock()?;
        let device = device_of(&mut state, location.get()?, kind)?;
        pool.put(state.mempools.standard(device))
    }
    /// Sets the pool in use for a location.
    cuMemSetMemPool 13000 => fn cuMemSetMemPool(location: Out<MemLocation>, kind: u32, pool: u64) {
        let mut state = lock()?;
        let device = device_of(&mut state, location.get()?, kind)?;
        state.mempools.choose(device, pool)
    }
    cuMemPoolCreate 11020 => fn cuMemPoolCreate(pool: Out<u64>, props: In<MemPoolProps>) {
        let mut state = lock()?;
        pool.required()?;
        capture::unsafe_call(&mut state)?;
        let props = props.get()?;
        let device = device_of(&mut state, props.location, props.kind)?;
        pool.put(state.mempools.create(device, &props))
    }
    /// Destroys a pool. It lives until its last block is freed.
    cuMemPoolDestroy 11020 => fn cuMemPoolDestroy(pool: u64) {
        let mut state = lock()?;
        capture::unsafe_call(&mut state)?;
        state.destroy_pool(pool)
    }
    /// Frees unused memory until at most `keep` bytes are held.
    cuMemPoolTrimTo 11020 => fn cuMemPoolTrimTo(pool: u64, keep: usize) {
        let mut state = lock()?;
        capture::unsafe_call(&mut state)?;
        state.trim_pool(pool, keep as u64)
    }
    /// Returns one attribute of a pool.
    cuMemPoolGetAttribute 11020 => fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: Out<u64>) {
        let mut state = lock()?;
        capture::unsafe_call(&mut state)?;
        get(&mut state, pool, attribute, value)
    }
    /// Sets one attribute of a pool.
    cuMemPoolSetAttribute 11020 => fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: In<u64>) {
        let mut state = lock()?;
        capture::unsafe_call(&mut state)?;
        set(&mut state, pool, attribute, value)
    }
    /// Sets the devices that may use a pool's memory. Its own device always may.
    cuMemPoolSetAccess 11020 => fn cuMemPoolSetAccess(pool: u64, access: In<MemAccess>, count: usize) {
        let mut state = lock()?;
        let own = state.mempools.get(pool)?.device;
        let wanted = access.list(count)?;
        for one in &wanted {
            state.device(one.location.id)?;
            if one.location.id == own && one.flags != 3 {
                return Err(INVALID_DEVICE);
            }
        }
        let granted = wanted.iter().map(|one| (one.location.id, one.flags));
        state.mempools.get(pool)?.access.extend(granted);
        Ok(())
    }
    /// Returns the access of a location to a pool's memory.
    cuMemPoolGetAccess 11020 => fn cuMemPoolGetAccess(flags: Out<u32>, pool: u64, location: In<MemLocation>) {
        let mut state = lock()?;
        let location = location.get()?;
        if location.kind == DEVICE && state.device(location.id).is_err() {
            return Err(INVALID_VALUE);
        }
        let pool = state.mempools.get(pool)?;
        flags.put(match location.kind {
            DEVICE if location.id == pool.device => 3,
            DEVICE => pool.access.get(&location.id).copied().unwrap_or(0),
            _ => 0,
        })
    }
    /// Refuses to export a pool. Without the handle type the value is invalid; with it the export
    /// is not supported.
    cuMemPoolExportToShareableHandle 11020 => fn cuMemPoolExportToShareableHandle(_shared: Out<i32>, pool: u64, kind: u32, _flags: u64) {
        match lock()?.mempools.get(pool)?.handles & kind {
            0 => Err(INVALID_VALUE),
            _ => Err(NOT_SUPPORTED),
        }
    }
    /// Refuses to import a pool of a peer process: not supported here.
    cuMemPoolImportFromShareableHandle 11020 => fn cuMemPoolImportFromShareableHandle(_pool: Out<u64>, _shared: u64, _kind: u32, _flags: u64) {
        lock()?;
        Err(NOT_SUPPORTED)
    }
    /// Refuses to export a block. In a pool without handle types the value is invalid; else the
    /// export is not supported.
    cuMemPoolExportPointer 11020 => fn cuMemPoolExportPointer(_data: Out<[u8; 64]>, address: u64) {
        let mut state = lock()?;
        let pool = state.mempools.owner(address).ok_or(INVALID_VALUE)?;
        match state.mempools.get(pool)?.handles {
            0 => Err(INVALID_VALUE),
            _ => Err(NOT_SUPPORTED),
        }
    }
    /// Refuses to import a block of a peer process: not supported here.
    cuMemPoolImportPointer 11020 => fn cuMemPoolImportPointer(_address: Out<u64>, _pool: u64, _data: In<[u8; 64]>) {
        lock()?;
        Err(NOT_SUPPORTED)
    }
}
