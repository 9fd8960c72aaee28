//! Memory and events shared with peer processes.

use std::ffi::c_uint;

use crate::driver::Handle;

/// `CUipcMemHandle` and `CUipcEventHandle`: 64 bytes that only the driver reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle([u8; 64]);

entries! {
    /// Returns a handle of a whole allocation.
    fn cudaIpcGetMemHandle(handle: *mut IpcHandle, pointer: u64) |driver| { forward!(driver.cuIpcGetMemHandle(handle, pointer)) }

    /// Maps an allocation of a peer process.
    fn cudaIpcOpenMemHandle(pointer: *mut u64, handle: IpcHandle, flags: c_uint) |driver| {
        forward!(driver.cuIpcOpenMemHandle(pointer, handle, flags))
    }

    /// Unmaps an allocation of a peer process.
    fn cudaIpcCloseMemHandle(pointer: u64) |driver| { forward!(driver.cuIpcCloseMemHandle(pointer)) }

    /// Returns a handle of an event.
    fn cudaIpcGetEventHandle(handle: *mut IpcHandle, event: Handle) |driver| { forward!(driver.cuIpcGetEventHandle(handle, event)) }

    /// Opens an event of a peer process.
    fn cudaIpcOpenEventHandle(event: *mut Handle, handle: IpcHandle) |driver| { forward!(driver.cuIpcOpenEventHandle(event, handle)) }
}
