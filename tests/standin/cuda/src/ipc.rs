//! Memory shared with other processes by `cuIpcGetMemHandle`.
//!
//! The pages of an exported allocation become pages of a file. The peer process opens the file
//! through `/proc`. A handle names process, descriptor and part of the file.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::abi::Out;
use crate::codes::{
    INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome,
};
use crate::memory::{Allocation, Kind, PAGE};
use crate::physical::{map_file, sparse_file, unmap_file};
use crate::state::{State, lock};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only flag of the API, and a required one.
const LAZY_PEER_ACCESS: u32 = 1;
/// `CU_EVENT_INTERPROCESS`.
const EVENT_INTERPROCESS: u32 = 4;
/// Marks the handles of the stand-in.
const MAGIC: u64 = u64::from_ne_bytes(*b"standin\0");
/// Size of the pieces in which contents are copied, in bytes.
const PIECE: usize = 1 << 20;

/// `CUipcMemHandle`: 64 bytes that only the driver reads.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpcHandle {
    magic: u64,
    process: u32,
    descriptor: i32,
    /// Number of the allocation in that process.
    id: u64,
    /// Offset and size of the allocation in the file, in bytes.
    offset: u64,
    size: u64,
    /// Size of the file in bytes.
    length: u64,
    reserved: [u64; 2],
}

struct Import {
    process: u32,
    id: u64,
    count: u32,
    /// Addresses of the mapping of the whole file.
    pages: Range<u64>,
}

/// Memory exported to and imported from other processes.
#[derive(Default)]
pub struct Ipc {
    exports: HashMap<u64, (u64, File)>,
    imports: BTreeMap<u64, Import>,
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Copies the contents of a range to a new file and maps the file at the range.
fn share(pages: &Range<u64>) -> Outcome<File> {
    let length = pages.end - pages.start;
    let file = sparse_file(length)?;
    for offset in (0..length as usize).step_by(PIECE) {
        let size = PIECE.min(length as usize - offset);
        // SAFETY: pages of the driver's own memory, readable as all of it is, and held by a live
        // allocation.
        let bytes = unsafe {
            std::slice::from_raw_parts((pages.start as usize + offset) as *const u8, size)
        };
        if !is_zero(bytes) {
            file.write_all_at(bytes, offset as u64)
                .map_err(|_| OUT_OF_MEMORY)?;
        }
    }
    map_file(pages.start, length, &file, 0)?;
    Ok(file)
}

fn export(state: &mut State, address: u64) -> Outcome<IpcHandle> {
    let (base, found) = state.memory.find(address).ok_or(INVALID_VALUE)?;
    if found.kind != Kind::Device {
        return Err(INVALID_VALUE);
    }
    let (id, size) = (found.id, found.size);
    let pages = base / PAGE * PAGE..(base + found.spacing).next_multiple_of(PAGE);
    let length = pages.end - pages.start;
    let known = state
        .ipc
        .exports
        .get(&pages.start)
        .filter(|(known, _)| *known == length);
    if known.is_none() {
        let file = share(&pages)?;
        state.ipc.exports.insert(pages.start, (length, file));
    }
    let (_, file) = state.ipc.exports.get(&pages.start).ok_or(INVALID_VALUE)?;
    Ok(IpcHandle {
        magic: MAGIC,
        process: std::process::id(),
        descriptor: file.as_raw_fd(),
        id,
        offset: base - pages.start,
        size,
        length,
        reserved: [0; 2],
    })
}

fn open(handle: IpcHandle, flags: u32) -> Outcome<u64> {
    let mut state = lock()?;
    let context = state.current()?;
    if flags != LAZY_PEER_ACCESS || handle.magic != MAGIC {
        return Err(INVALID_VALUE);
    }
    if handle.process == std::process::id() {
        return Err(INVALID_CONTEXT);
    }
    let is_same = |import: &&mut Import| import.process == handle.process && import.id == handle.id;
    if let Some((address, import)) = state
        .ipc
        .imports
        .iter_mut()
        .map(|(address, import)| (*address, import))
        .find(|(_, import)| is_same(import))
    {
        import.count += 1;
        return Ok(address);
    }
    let path = format!("/proc/{}/fd/{}", handle.process, handle.descriptor);
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|_| INVALID_VALUE)?;
    let start = state.memory.reserve(handle.length, PAGE)?;
    if let Err(code) = map_file(start, handle.length, &file, 0) {
        state.memory.unreserve(start, handle.length);
        return Err(code);
    }
    let address = start + handle.offset;
    let device = state.contexts.get(context)?.device;
    let allocation = Allocation {
        size: handle.size,
        spacing: handle.size,
        context,
        device,
        kind: Kind::Imported,
        flags: 0,
        id: 0,
        on_free: None,
    };
    state.memory.insert(address, allocation);
    state.model.forget(start..start + handle.length);
    let import = Import {
        process: handle.process,
        id: handle.id,
        count: 1,
        pages: start..start + handle.length,
    };
    state.ipc.imports.insert(address, import);
    Ok(address)
}

fn close(address: u64) -> Outcome {
    let mut state = lock()?;
    state.current()?;
    let import = state.ipc.imports.get_mut(&address).ok_or(INVALID_VALUE)?;
    import.count -= 1;
    if import.count > 0 {
        return Ok(());
    }
    let Some(import) = state.ipc.imports.remove(&address) else {
        return Ok(());
    };
    let length = import.pages.end - import.pages.start;
    state
        .model
        .withdraw(import.pages.clone(), "close of an IPC handle");
    state.memory.remove(address);
    unmap_file(import.pages.start, length);
    state.memory.unreserve(import.pages.start, length);
    Ok(())
}

api! {
    /// Returns a handle of the allocation that holds an address. It is a handle of the whole
    /// allocation.
    cuIpcGetMemHandle 4010 => fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) {
        let mut state = lock()?;
        state.current()?;
        handle.required()?;
        handle.put(export(&mut state, address)?)
    }
    /// Maps an allocation of a peer process.
    cuIpcOpenMemHandle 4010 => fn cuIpcOpenMemHandle(address: Out<u64>, handle: IpcHandle, flags: u32) {
        address.required()?;
        address.put(open(handle, flags)?)
    }
    /// Maps an allocation of a peer process.
    cuIpcOpenMemHandle 11000 => fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: IpcHandle, flags: u32) {
        address.required()?;
        address.put(open(handle, flags)?)
    }
    /// Unmaps an allocation of a peer process, at the last close.
    cuIpcCloseMemHandle 4010 => fn cuIpcCloseMemHandle(address: u64) {
        close(address)
    }
    /// Returns a handle of an interprocess event.
    cuIpcGetEventHandle 4010 => fn cuIpcGetEventHandle(handle: Out<IpcHandle>, event: u64) {
        let state = lock()?;
        handle.required()?;
        if state.events.get(event)?.flags & EVENT_INTERPROCESS == 0 {
            return Err(INVALID_HANDLE);
        }
        handle.put(IpcHandle { magic: MAGIC, process: std::process::id(), id: event, ..IpcHandle::default() })
    }
    /// Refuses to open an event of a peer process: each process models its own time.
    cuIpcOpenEventHandle 4010 => fn cuIpcOpenEventHandle(_event: Out<u64>, _handle: IpcHandle) {
        lock()?;
        Err(NOT_SUPPORTED)
    }
}
