//! Events: a wait for one shows that work is complete, and a record may mean that another stream
//! uses a tensor.

use std::ffi::c_uint;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, SUCCESS};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::{registry, threshold};

/// Notes that this thread recorded an event. PyTorch records one on each other stream that used a
/// tensor (`record_stream`), before it announces the tensor's end: `hooks/torch.rs` reads the note.
fn note() {
    thread::with(|thread| thread.has_recorded.set(true));
}

driver_hooks! {
    /// Records an event on a stream.
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
    /// Records an event with flags; in a capture it may be an external event of the graph.
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) {
        note();
        // SAFETY: as above.
        unsafe { real::cuEventRecordWithFlags(event, stream, flags) }
    }
    /// Records an event with flags, per-thread default stream.
    fn cuEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: c_uint) {
        note();
        // SAFETY: as above.
        unsafe { real::cuEventRecordWithFlags_ptsz(event, stream, flags) }
    }
    /// Waits for an event on the host.
    fn cuEventSynchronize(event: Handle) {
        // SAFETY: as above.
        let result = unsafe { real::cuEventSynchronize(event) };
        if result == SUCCESS {
            registry::all().for_each(threshold::release_surplus);
        }
        result
    }
}
