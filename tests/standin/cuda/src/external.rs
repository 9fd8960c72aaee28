//! Memory of another API or process, imported by file descriptor.

use crate::abi::{In, Out};
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::memory::{Allocation, Kind, PAGE};
use crate::physical::{map_file, unmap_file};
use crate::state::{Guard, lock};

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: u32 = 1;

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExternalMemory {
    kind: u32,
    /// Holds a file descriptor in its first four bytes.
    handle: [u64; 2],
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExternalBuffer {
    offset: u64,
    size: u64,
    flags: u32,
    reserved: [u32; 16],
}

/// Frees a mapped buffer, for `cuMemFree`.
fn free(state: &mut Guard, base: u64) -> Outcome {
    let gone = state.memory.remove(base).ok_or(INVALID_VALUE)?;
    unmap_file(base, gone.spacing);
    state.model.unmap(base..base + gone.spacing, "free");
    state.memory.unreserve(base, gone.spacing);
    Ok(())
}

api! {
    /// Imports memory by a file descriptor. The driver owns the descriptor after a successful call.
    cuImportExternalMemory 10000 => fn cuImportExternalMemory(memory: Out<u64>, wanted: In<ExternalMemory>) {
        let mut state = lock()?;
        state.current()?;
        memory.required()?;
        let wanted = wanted.get()?;
        if wanted.kind != OPAQUE_FD {
            return Err(NOT_SUPPORTED);
        }
        let fd = wanted.handle[0] as i32;
        let key = state.vmm.store.import(fd)?;
        // SAFETY: the import has its own copy; by the API's rule this one is given to the driver.
        unsafe { libc::close(fd) };
        memory.put(state.external.insert(key))
    }
    /// Maps a part of imported memory.
    cuExternalMemoryGetMappedBuffer 10000 => fn cuExternalMemoryGetMappedBuffer(address: Out<u64>, memory: u64, wanted: In<ExternalBuffer>) {
        let mut state = lock()?;
        let context = state.current()?;
        let device = state.contexts.get(context)?.device;
        address.required()?;
        let wanted = wanted.get()?;
        let key = *state.external.get(memory)?;
        let physical = state.vmm.store.get(key).ok_or(INVALID_VALUE)?.clone();
        let end = wanted.offset.checked_add(wanted.size).ok_or(INVALID_VALUE)?;
        if wanted.size == 0 || !wanted.offset.is_multiple_of(4096) || end > physical.size {
            return Err(INVALID_VALUE);
        }
        let base = state.memory.reserve(wanted.size, PAGE)?;
        map_file(base, wanted.size, &physical.file, physical.offset + wanted.offset)?;
        let allocation = Allocation {
            size: wanted.size,
            spacing: crate::memory::round(wanted.size),
            context,
            device,
            kind: Kind::Imported,
            flags: 0,
            id: 0,
            on_free: Some(free),
        };
        state.memory.insert(base, allocation);
        state.model.map(base..base + wanted.size, physical.place + wanted.offset);
        address.put(base)
    }
    /// Ends the import. The program must free its mapped buffers.
    cuDestroyExternalMemory 10000 => fn cuDestroyExternalMemory(memory: u64) {
        let mut state = lock()?;
        let key = state.external.remove(memory)?;
        crate::vmm::drop_user(&mut state, key);
        Ok(())
    }
}
