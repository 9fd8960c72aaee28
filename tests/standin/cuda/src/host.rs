//! Page-locked host memory.

use crate::abi::Out;
use crate::capture;
use crate::codes::{
    HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY,
    Outcome,
};
use crate::memory::{Allocation, Kind};
use crate::state::{State, lock};

/// Flags that `cuMemHostAlloc` accepts: portable, device map, write-combined.
const ALLOC_FLAGS: u32 = 7;
/// Flags that `cuMemHostRegister` accepts: portable, device map, I/O memory, read-only.
const REGISTER_FLAGS: u32 = 15;

const SYSTEM_PAGE: u64 = 4096;

fn insert(state: &mut State, address: u64, bytes: u64, kind: Kind, flags: u32) -> Outcome {
    let context = state.current()?;
    let device = state.contexts.get(context)?.device;
    let allocation = Allocation {
        size: bytes,
        spacing: bytes,
        context,
        device,
        kind,
        flags,
        id: 0,
        on_free: None,
    };
    state.memory.insert(address, allocation);
    Ok(())
}

fn allocate(to: Out<u64>, bytes: usize, flags: u32) -> Outcome {
    let mut state = lock()?;
    state.current()?;
    // A failed call leaves null in the result. For 0 bytes the result is null too.
    to.put(0)?;
    if flags & !ALLOC_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(());
    }
    capture::unsafe_call(&mut state)?;
    let length = bytes
        .checked_next_multiple_of(SYSTEM_PAGE as usize)
        .ok_or(OUT_OF_MEMORY)?;
    let (protection, sharing) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    );
    // SAFETY: a new anonymous mapping at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, sharing, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    insert(&mut state, at as u64, bytes as u64, Kind::Host, flags)?;
    to.put(at as u64)
}

/// Removes host memory from the table. Unmaps memory that the driver allocated.
pub fn release(state: &mut State, base: u64) -> Outcome {
    let allocation = state.memory.remove(base).ok_or(INVALID_VALUE)?;
    state.model.forget(base..base + allocation.size);
    if allocation.kind == Kind::Host {
        let length = allocation.size.next_multiple_of(SYSTEM_PAGE) as usize;
        // SAFETY: `allocate` made this mapping, and its entry in the table was the only claim.
        unsafe { libc::munmap(base as *mut libc::c_void, length) };
    }
    Ok(())
}

fn free(base: u64, kind: Kind, missing: u32) -> Outcome {
    // A free needs no current context.
    let mut state = lock()?;
    if base == 0 {
        return Err(INVALID_VALUE);
    }
    capture::unsafe_call(&mut state)?;
    let found = state.memory.get(base).filter(|found| found.kind == kind);
    let is_inside = state.memory.find(base).is_some();
    let context = found
        .ok_or(if is_inside { INVALID_VALUE } else { missing })?
        .context;
    state.synchronize_context(context);
    release(&mut state, base)
}

api! {
    /// Allocates page-locked memory without flags.
    cuMemAllocHost 3020 => fn cuMemAllocHost_v2(address: Out<u64>, bytes: usize) {
        allocate(address, bytes, 0)
    }
    /// Allocates page-locked memory with flags.
    cuMemHostAlloc 2020 => fn cuMemHostAlloc(address: Out<u64>, bytes: usize, flags: u32) {
        allocate(address, bytes, flags)
    }
    /// Frees page-locked memory.
    cuMemFreeHost 2000 => fn cuMemFreeHost(address: u64) {
        match address {
            0 => lock().map(drop),
            _ => free(address, Kind::Host, INVALID_VALUE),
        }
    }
    /// Page-locks memory of the program.
    cuMemHostRegister 4000 => fn cuMemHostRegister(address: u64, bytes: usize, flags: u32) {
        register(address, bytes, flags)
    }
    /// Page-locks memory of the program.
    cuMemHostRegister 6050 => fn cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32) {
        register(address, bytes, flags)
    }
    /// Ends the page lock of memory of the program.
    cuMemHostUnregister 4000 => fn cuMemHostUnregister(address: u64) {
        free(address, Kind::Registered, HOST_MEMORY_NOT_REGISTERED)
    }
    /// Returns the device's address of page-locked memory, which is the host's.
    cuMemHostGetDevicePointer 3020 => fn cuMemHostGetDevicePointer_v2(to: Out<u64>, address: u64, flags: u32) {
        let state = lock()?;
        state.current()?;
        let found = state.memory.find(address).map(|(_, found)| found.kind);
        match found {
            Some(Kind::Host | Kind::Registered | Kind::Managed) if flags == 0 => to.put(address),
            _ => Err(INVALID_VALUE),
        }
    }
    /// Returns the flags of page-locked memory.
    cuMemHostGetFlags 2030 => fn cuMemHostGetFlags(flags: Out<u32>, address: u64) {
        let state = lock()?;
        state.current()?;
        match state.memory.find(address) {
            // Under unified addressing all of it is mapped (CU_MEMHOSTALLOC_DEVICEMAP).
            Some((_, found)) if matches!(found.kind, Kind::Host | Kind::Registered) => flags.put(found.flags | 2),
            _ => Err(INVALID_VALUE),
        }
    }
}

fn register(address: u64, bytes: usize, flags: u32) -> Outcome {
    let mut state = lock()?;
    state.current()?;
    if address == 0 || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    capture::unsafe_call(&mut state)?;
    let end = address + bytes as u64;
    let overlaps = |(base, found): (u64, &Allocation)| base < end && base + found.size > address;
    let mut overlapping = state.memory.iter().filter(|one| overlaps(*one));
    match overlapping.next().map(|(_, found)| found.kind) {
        Some(Kind::Host | Kind::Registered) => return Err(HOST_MEMORY_ALREADY_REGISTERED),
        Some(_) => return Err(INVALID_VALUE),
        None if state.memory.owns(address) => return Err(INVALID_VALUE),
        None => {}
    }
    drop(overlapping);
    insert(&mut state, address, bytes as u64, Kind::Registered, flags)
}
