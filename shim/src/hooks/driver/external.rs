//! Memory that other processes and APIs share with this one.

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::Once;

use cudarc::driver::sys;
use gpushim_ipc::Token;
use gpushim_trace::{Class, Kind};

use crate::base::stderr;
use crate::cuda::context;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, DevicePtr, Handle, INVALID_VALUE, NOWHERE, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::caches::{self, News};
use crate::memory::limit::{self, Place};
use crate::memory::owner::{self, Owner};
use crate::memory::registry::RegisteredPool;
use crate::memory::{
    elastic, elastic_ranges, ipc_export, ipc_import, mappings, passthrough, reservations,
};
use crate::record::events;

/// Notes that others may now reach this memory. Its free must then reach the driver.
pub fn exported(class: Class, address: DevicePtr) {
    caches::tell(News::Exported(address));
    events::forwarded(Kind::Export, class, context::device(), address, 0, 0);
}

/// Writes a handle of memory in pages: a token, for processes with this library. `otherwise`
/// reports why there is none.
fn token(
    handle: *mut c_void,
    address: DevicePtr,
    otherwise: impl FnOnce() -> CUresult,
) -> CUresult {
    static NO_SERVER: Once = Once::new();
    if handle.is_null() {
        return INVALID_VALUE;
    }
    let token = match ipc_export::token(address) {
        Some(Ok(token)) => token,
        Some(Err(why)) => return no_handle(&NO_SERVER, why),
        None => return otherwise(),
    };
    // SAFETY: not null, and the caller's to be written.
    unsafe {
        handle
            .cast::<[u8; Token::SIZE]>()
            .write_unaligned(token.encode())
    };
    // Pages of a live block stay where they are: its pool need not know.
    events::forwarded(Kind::Export, Class::Ipc, context::device(), address, 0, 0);
    SUCCESS
}

/// Says once, in one line, why there is no handle: the error code alone does not show it.
fn no_handle(said: &Once, why: &str) -> CUresult {
    said.call_once(|| stderr::say(&format!("failed to make an IPC handle: {why}")));
    INVALID_VALUE
}

/// Reports that a block of a stream-ordered pool has no handle for other processes. The driver's
/// pools have none either: a part of a larger allocation would open as all of it.
fn no_handle_of_pool(entry: &RegisteredPool) -> CUresult {
    static SAID: Once = Once::new();
    let why = format!(
        "memory of a stream-ordered pool (device {}) has none; use memory of cudaMalloc, and no takeover in this process",
        entry.device
    );
    no_handle(&SAID, &why)
}

/// Reports that a segment has no handle: a part of it is in memory of the host, or the device has
/// no descriptors.
fn no_handle_of_segment() -> CUresult {
    static SAID: Once = Once::new();
    let why = "a segment of PyTorch's (GPUSHIM_ELASTIC) is in part in memory of the host, because the device has none left, \
               or the device has no descriptors";
    no_handle(&SAID, why)
}

/// Opens a handle: of memory in pages, or else by `call`, the driver's function.
fn open(
    address: *mut DevicePtr,
    handle: &sys::CUipcMemHandle,
    flags: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let served = (!address.is_null()).then(|| ipc_import::open(handle, flags));
    let result = match served.flatten() {
        Some(Ok(found)) => {
            // SAFETY: not null, and the caller's to be written.
            unsafe { *address = found };
            SUCCESS
        }
        Some(Err(error)) => error,
        None => call(),
    };
    if result == SUCCESS {
        // SAFETY: it was written.
        passthrough::allocated(Class::Ipc, unsafe { *address }, 0);
    }
    result
}

driver_hooks! {
    /// Writes a handle with which other processes open an allocation.
    fn cuIpcGetMemHandle(handle: *mut c_void, address: DevicePtr) {
        if context::current().is_none() {
            // The driver returns the reason.
            // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
            return unsafe { real::cuIpcGetMemHandle(handle, address) };
        }
        match owner::of(address) {
            Owner::Pool(pool, _) => return token(handle, address, || no_handle_of_pool(pool)),
            Owner::Segment(..) => {
                elastic::pin(address);
                return token(handle, address, no_handle_of_segment);
            }
            Owner::Import(_) | Owner::Nobody => return INVALID_VALUE,
            Owner::Whole(..) | Owner::Driver => {}
        }
        // SAFETY: as above.
        let result = unsafe { real::cuIpcGetMemHandle(handle, address) };
        if result == SUCCESS {
            exported(Class::Ipc, address);
            return result;
        }
        // The driver has no handle of memory that the program mapped itself.
        token(handle, address, || result)
    }
    /// Opens another process's allocation (CUDA 4 to 10).
    fn cuIpcOpenMemHandle(address: *mut DevicePtr, handle: sys::CUipcMemHandle, flags: c_uint) {
        // SAFETY: as above.
        let call = || unsafe { real::cuIpcOpenMemHandle(address, handle, flags) };
        open(address, &handle, flags, call)
    }
    /// Opens another process's allocation.
    fn cuIpcOpenMemHandle_v2(address: *mut DevicePtr, handle: sys::CUipcMemHandle, flags: c_uint) {
        // SAFETY: as above.
        let call = || unsafe { real::cuIpcOpenMemHandle_v2(address, handle, flags) };
        open(address, &handle, flags, call)
    }
    /// Closes another process's allocation.
    fn cuIpcCloseMemHandle(address: DevicePtr) {
        passthrough::free(address, 0, || match ipc_import::close(address) {
            Some(Ok(())) => SUCCESS,
            Some(Err(error)) => error,
            // SAFETY: as above.
            None => unsafe { real::cuIpcCloseMemHandle(address) },
        })
    }
    /// Makes a file descriptor of an address range, for other drivers.
    fn cuMemGetHandleForAddressRange(
        handle: *mut c_void, address: DevicePtr, bytes: usize, kind: c_uint, flags: c_ulonglong,
    ) {
        // The driver knows the memory around a block, and would give access to it, too.
        let owner = owner::of(address);
        let is_inside = |(base, size): (u64, u64)| (address - base).saturating_add(bytes as u64) <= size;
        let is_refused = match owner {
            Owner::Driver => false,
            Owner::Pool(_, block) if !block.for_all => true,
            Owner::Import(_) | Owner::Nobody => true,
            _ => !owner.range().is_some_and(is_inside),
        };
        if is_refused {
            // The driver's own error is returned, as for an address without memory.
            // SAFETY: as above, but for the address.
            return unsafe { real::cuMemGetHandleForAddressRange(handle, NOWHERE, bytes, kind, flags) };
        }
        // Before the call: all of the range must have memory.
        elastic::pin(address);
        // SAFETY: as above.
        let result = unsafe {
            real::cuMemGetHandleForAddressRange(handle, address, bytes, kind, flags)
        };
        if result == SUCCESS {
            exported(Class::External, address);
        }
        result
    }
    /// Returns a handle of the physical memory behind an address. Memory of `cudaMalloc` has none:
    /// a page may have several blocks. Nor has elastic memory: a mapped part has several pieces, and
    /// its handle none.
    fn cuMemRetainAllocationHandle(handle: *mut c_ulonglong, address: *mut c_void) {
        if reservations::overlap(address as u64, 1) || elastic_ranges::has(address as u64) {
            return INVALID_VALUE;
        }
        // SAFETY: as above.
        let result = unsafe { real::cuMemRetainAllocationHandle(handle, address) };
        if result == SUCCESS {
            // SAFETY: the driver wrote the handle.
            let handle = unsafe { *handle };
            limit::share(Place::of_physical(handle));
            mappings::retained(handle, address as u64);
            exported(Class::Vmm, address as u64);
        }
        result
    }
    /// Imports memory of another API.
    fn cuImportExternalMemory(
        memory: *mut Handle, descriptor: *const sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) {
        // SAFETY: as above.
        let result = unsafe { real::cuImportExternalMemory(memory, descriptor) };
        if result == SUCCESS {
            // SAFETY: the driver read the descriptor and wrote the handle.
            let (memory, bytes) = unsafe { (*memory, (*descriptor).size) };
            passthrough::allocated(Class::External, memory as u64, bytes);
        }
        result
    }
    /// Releases memory of another API.
    fn cuDestroyExternalMemory(memory: Handle) {
        // SAFETY: as above.
        passthrough::free(memory as u64, 0, || unsafe { real::cuDestroyExternalMemory(memory) })
    }
}
