//! Events: waiting for one shows that work is over, and recording one that other streams may use a tensor.

use std::ffi::c_uint;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::{registry, surplus};

/// PyTorch records an event on each other stream that used a tensor (`record_stream`) before it announces the tensor's end:
/// `hooks/torch.rs` asks for that.
fn note() {
    thread::with(|thread| thread.has_recorded.set(true));
}

driver_hooks! {
    /// Records an event.
    fn cuEventRecord(event: Handle, stream: Handle) {
        note();
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        unsafe { real::cuEventRecord(event, stream) }
    }
    /// Records an event, per-thread default stream.
    fn cuEventRecord_ptsz(event: Handle, stream: Handle) {
        note();
        // SAFETY: as above.
        unsafe { real::cuEventRecord_ptsz(event, stream) }
    }
    /// Records an event, in a graph as one of others, too.
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        note();
        // SAFETY: as above.
        unsafe { real::cuEventRecordWithFlags(event, stream, flags) }
    }
    /// Records an event, in a graph as one of others, too; per-thread default stream.
    fn cuEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: c_uint) {
        note();
        // SAFETY: as above.
        unsafe { real::cuEventRecordWithFlags_ptsz(event, stream, flags) }
    }
    /// Waits for an event.
    fn cuEventSynchronize(event: Handle) {
        // SAFETY: as above.
        let result = unsafe { real::cuEventSynchronize(event) };
        if result == SUCCESS {
            registry::all().for_each(surplus::release_surplus);
        }
        result
    }
}
