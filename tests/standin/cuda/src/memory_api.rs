//! Allocating, freeing and asking about device memory.

use crate::abi::Out;
use crate::capture;
use crate::codes::{CONTEXT_IS_DESTROYED, INVALID_VALUE, NOT_FOUND, Outcome};
use crate::env::settings;
use crate::memory::Kind;
use crate::state::lock;

/// Alignment of the rows of a pitched allocation, in bytes.
const PITCH: usize = 512;

fn allocate(address: Out<u64>, bytes: u64, kind: Kind, flags: u32) -> Outcome {
    settings().latency.spend("malloc");
    let mut state = lock()?;
    // A failed call leaves null in the result.
    address.maybe(0);
    let context = state.current()?;
    address.required()?;
    capture::unsafe_call(&mut state)?;
    let owner = state.owner(context);
    address.put(state.allocate(owner, bytes, kind, flags)?)
}

fn free(base: u64) -> Outcome {
    settings().latency.spend("free");
    // A free needs no current context, but fails with a context that was reset.
    let mut state = lock()?;
    if state.current() == Err(CONTEXT_IS_DESTROYED) {
        return Err(CONTEXT_IS_DESTROYED);
    }
    // The check applies to null as well.
    capture::unsafe_call(&mut state)?;
    if base == 0 {
        return Ok(());
    }
    let Some(allocation) = state.memory.get(base).cloned() else {
        if state.memory.was_freed(base) {
            state.model.find(format!("double free of {base:#x}"));
        }
        return Err(INVALID_VALUE);
    };
    if allocation.on_free.is_none() && !matches!(allocation.kind, Kind::Device | Kind::Managed) {
        return Err(INVALID_VALUE);
    }
    // The free waits for all streams of the memory's context, non-blocking ones included. For
    // memory of a pool it waits for nothing (recorded.txt).
    if allocation.kind != Kind::Pool && settings().memory_orders {
        state.synchronize_context(allocation.context);
    }
    let bytes = base..base + allocation.size;
    // Work of other contexts on the same bytes is not waited for.
    state.model.withdraw(bytes, "free");
    match allocation.on_free {
        Some(give_back) => give_back(&mut state, base),
        None => state.release(base),
    }
}

api! {
    /// Returns free and total bytes of the current context's device.
    cuMemGetInfo 3020 => fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let mut state = lock()?;
        let current = state.current()?;
        let ordinal = state.contexts.get(current)?.device;
        free.maybe(state.free_memory(ordinal)? as usize);
        total.maybe(state.device(ordinal)?.total as usize);
        Ok(())
    }
    cuMemAlloc 3020 => fn cuMemAlloc_v2(address: Out<u64>, bytes: usize) {
        allocate(address, bytes as u64, Kind::Device, 0)
    }
    /// Allocates device memory with aligned rows.
    cuMemAllocPitch 3020 => fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        lock()?.current()?;
        address.required()?;
        pitch.required()?;
        if !matches!(element, 4 | 8 | 16) {
            return Err(INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(INVALID_VALUE)?;
        allocate(address, bytes as u64, Kind::Device, 0)?;
        pitch.put(row)
    }
    /// Allocates memory that host and device share.
    cuMemAllocManaged 6000 => fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: u32) {
        lock()?.current()?;
        address.required()?;
        // CU_MEM_ATTACH_GLOBAL or CU_MEM_ATTACH_HOST.
        if !matches!(flags, 1 | 2) {
            return Err(INVALID_VALUE);
        }
        allocate(address, bytes as u64, Kind::Managed, flags)
    }
    /// Frees device memory, after all work of its context.
    cuMemFree 3020 => fn cuMemFree_v2(address: u64) {
        free(address)
    }
    /// Returns base and size of the allocation that holds an address.
    cuMemGetAddressRange 3020 => fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) {
        let state = lock()?;
        state.current()?;
        let (start, found) = state.memory.find(address).ok_or(NOT_FOUND)?;
        base.maybe(start);
        size.maybe(found.size as usize);
        Ok(())
    }
}
