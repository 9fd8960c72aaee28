//! Memory that leaves the process or comes into it.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys;
use gpushim_core::trace::{Class, Kind};

use super::{DevicePtr, Handle};
use crate::driver::{CUresult, SUCCESS};
use crate::interpose::hook::driver_hooks;
use crate::{allocator, context, foreign, recorder};

/// `CU_POINTER_ATTRIBUTE_P2P_TOKENS`: another driver is about to reach the memory.
const P2P_TOKENS: c_int = 5;

/// Others may reach this memory from here on: its free must be a free.
fn exported(class: Class, address: DevicePtr) {
    if let Some(pool) = allocator::used() {
        pool.exported(address);
    }
    recorder::forwarded(Kind::Export, class, context::device(), address, 0, 0);
}

driver_hooks! {
    /// A handle with which other processes open an allocation.
    fn cuIpcGetMemHandle(handle: *mut c_void, address: DevicePtr) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        let result = unsafe { real::cuIpcGetMemHandle(handle, address) };
        if result == SUCCESS {
            exported(Class::Ipc, address);
        }
        result
    }
    /// Another process's allocation, here (CUDA 4 to 10).
    fn cuIpcOpenMemHandle(address: *mut DevicePtr, handle: sys::CUipcMemHandle, flags: c_uint) {
        // SAFETY: as above.
        let result = unsafe { real::cuIpcOpenMemHandle(address, handle, flags) };
        if result == SUCCESS {
            // SAFETY: the driver wrote the address.
            foreign::allocated(Class::Ipc, unsafe { *address }, 0, 0);
        }
        result
    }
    /// Another process's allocation, here.
    fn cuIpcOpenMemHandle_v2(address: *mut DevicePtr, handle: sys::CUipcMemHandle, flags: c_uint) {
        // SAFETY: as above.
        let result = unsafe { real::cuIpcOpenMemHandle_v2(address, handle, flags) };
        if result == SUCCESS {
            // SAFETY: the driver wrote the address.
            foreign::allocated(Class::Ipc, unsafe { *address }, 0, 0);
        }
        result
    }
    /// Another process's allocation, here no longer.
    fn cuIpcCloseMemHandle(address: DevicePtr) {
        // SAFETY: as above.
        foreign::free(address, 0, || unsafe { real::cuIpcCloseMemHandle(address) })
    }
    /// A file descriptor of an address range, for other drivers.
    fn cuMemGetHandleForAddressRange(
        handle: *mut c_void, address: DevicePtr, bytes: usize, kind: c_uint, flags: c_ulonglong,
    ) {
        // SAFETY: as above.
        let result = unsafe {
            real::cuMemGetHandleForAddressRange(handle, address, bytes, kind, flags)
        };
        if result == SUCCESS {
            exported(Class::External, address);
        }
        result
    }
    /// An attribute such as SYNC_MEMOPS stays with the memory: the next owner must not inherit it.
    fn cuPointerSetAttribute(value: *const c_void, attribute: c_int, address: DevicePtr) {
        // SAFETY: as above.
        let result = unsafe { real::cuPointerSetAttribute(value, attribute, address) };
        if result == SUCCESS {
            exported(Class::Device, address);
        }
        result
    }
    /// Asking for peer-to-peer tokens means that another driver will reach the memory.
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: DevicePtr) {
        // SAFETY: as above.
        let result = unsafe { real::cuPointerGetAttribute(value, attribute, address) };
        if result == SUCCESS && attribute == P2P_TOKENS {
            exported(Class::External, address);
        }
        result
    }
    /// Memory of another API.
    fn cuImportExternalMemory(
        memory: *mut Handle, descriptor: *const sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    ) {
        // SAFETY: as above.
        let result = unsafe { real::cuImportExternalMemory(memory, descriptor) };
        if result == SUCCESS {
            // SAFETY: the driver read the descriptor and wrote the handle.
            let (memory, bytes) = unsafe { (*memory, (*descriptor).size) };
            foreign::allocated(Class::External, memory as u64, bytes, 0);
        }
        result
    }
    /// Memory of another API, no longer.
    fn cuDestroyExternalMemory(memory: Handle) {
        // SAFETY: as above.
        foreign::free(memory as u64, 0, || unsafe { real::cuDestroyExternalMemory(memory) })
    }
}
