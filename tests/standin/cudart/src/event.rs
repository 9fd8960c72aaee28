//! Events: creation, recording, waits and elapsed time.

use std::ffi::c_uint;

use crate::driver::Handle;

entries! {
    /// Makes an event that records times.
    fn cudaEventCreate(event: *mut Handle) |driver| { forward!(driver.cuEventCreate(event, 0)) }

    /// Makes an event. Flag 2 makes one that records no times.
    fn cudaEventCreateWithFlags(event: *mut Handle, flags: c_uint) |driver| { forward!(driver.cuEventCreate(event, flags)) }

    fn cudaEventDestroy(event: Handle) |driver| { forward!(driver.cuEventDestroy(event)) }

    /// Records an event after the stream's work so far.
    fn cudaEventRecord | cudaEventRecord_ptsz(event: Handle, stream: Handle) |driver| { forward!(driver.cuEventRecord(event, stream)) }

    /// Records an event after the stream's work so far, with flags.
    fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: c_uint) |driver| {
        forward!(driver.cuEventRecordWithFlags(event, stream, flags))
    }

    /// Reports if the recorded work is complete; error 600 if not.
    fn cudaEventQuery(event: Handle) |driver| { forward!(driver.cuEventQuery(event)) }

    /// Waits for the recorded work to complete.
    fn cudaEventSynchronize(event: Handle) |driver| { forward!(driver.cuEventSynchronize(event)) }

    /// Returns the milliseconds from one event to the other.
    fn cudaEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) |driver| {
        forward!(driver.cuEventElapsedTime(milliseconds, start, end))
    }
}
