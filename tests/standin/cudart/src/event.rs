//! Events.

use std::ffi::c_uint;

use crate::driver::Handle;

entries! {
    /// An event that keeps the time.
    fn cudaEventCreate(event: *mut Handle) |driver| { forward!(driver.cuEventCreate(event, 0)) }

    /// An event; flag 2 is for one that keeps no time.
    fn cudaEventCreateWithFlags(event: *mut Handle, flags: c_uint) |driver| { forward!(driver.cuEventCreate(event, flags)) }

    /// Destroys an event.
    fn cudaEventDestroy(event: Handle) |driver| { forward!(driver.cuEventDestroy(event)) }

    /// The event stands for the stream's work so far.
    fn cudaEventRecord | cudaEventRecord_ptsz(event: Handle, stream: Handle) |driver| { forward!(driver.cuEventRecord(event, stream)) }

    /// The same, with flags.
    fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: c_uint) |driver| {
        forward!(driver.cuEventRecordWithFlags(event, stream, flags))
    }

    /// Whether the event has come; error 600 if not.
    fn cudaEventQuery(event: Handle) |driver| { forward!(driver.cuEventQuery(event)) }

    /// Waits for the event.
    fn cudaEventSynchronize(event: Handle) |driver| { forward!(driver.cuEventSynchronize(event)) }

    /// Milliseconds from one event to the other.
    fn cudaEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) |driver| {
        forward!(driver.cuEventElapsedTime(milliseconds, start, end))
    }
}
