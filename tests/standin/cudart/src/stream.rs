//! Streams and capture.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::{Handle, HostFunction};

entries! {
    /// A stream that the legacy default stream waits for.
    fn cudaStreamCreate(stream: *mut Handle) |driver| { forward!(driver.cuStreamCreate(stream, 0)) }

    /// A stream; flag 1 makes it independent of the legacy default stream.
    fn cudaStreamCreateWithFlags(stream: *mut Handle, flags: c_uint) |driver| { forward!(driver.cuStreamCreate(stream, flags)) }

    /// A stream with a priority.
    fn cudaStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int) |driver| {
        forward!(driver.cuStreamCreateWithPriority(stream, flags, priority))
    }

    /// Destroys a stream; its work is still done.
    fn cudaStreamDestroy(stream: Handle) |driver| { forward!(driver.cuStreamDestroy(stream)) }

    /// Waits for a stream.
    fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz(stream: Handle) |driver| { forward!(driver.cuStreamSynchronize(stream)) }

    /// Whether a stream has finished; error 600 if not.
    fn cudaStreamQuery | cudaStreamQuery_ptsz(stream: Handle) |driver| { forward!(driver.cuStreamQuery(stream)) }

    /// Later work on the stream comes after the event.
    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: c_uint) |driver| {
        forward!(driver.cuStreamWaitEvent(stream, event, flags))
    }

    /// A stream's flags.
    fn cudaStreamGetFlags | cudaStreamGetFlags_ptsz(stream: Handle, flags: *mut c_uint) |driver| {
        forward!(driver.cuStreamGetFlags(stream, flags))
    }

    /// A stream's priority.
    fn cudaStreamGetPriority | cudaStreamGetPriority_ptsz(stream: Handle, priority: *mut c_int) |driver| {
        forward!(driver.cuStreamGetPriority(stream, priority))
    }

    /// A stream's number in the process.
    fn cudaStreamGetId | cudaStreamGetId_ptsz(stream: Handle, id: *mut u64) |driver| { forward!(driver.cuStreamGetId(stream, id)) }

    /// Runs a function of the host in the stream's order.
    fn cudaLaunchHostFunc | cudaLaunchHostFunc_ptsz(stream: Handle, function: Option<HostFunction>, data: *mut c_void) |driver| {
        forward!(driver.cuLaunchHostFunc(stream, function, data))
    }

    /// Work on the stream is recorded from here on, not done.
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz(stream: Handle, mode: c_int) |driver| {
        forward!(driver.cuStreamBeginCapture(stream, mode))
    }

    /// Ends that; the graph of what was recorded.
    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) |driver| {
        forward!(driver.cuStreamEndCapture(stream, graph))
    }

    /// Whether work on the stream is being recorded.
    fn cudaStreamIsCapturing | cudaStreamIsCapturing_ptsz(stream: Handle, status: *mut c_int) |driver| {
        forward!(driver.cuStreamIsCapturing(stream, status))
    }

    /// How the thread's calls interact with captures.
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) |driver| { forward!(driver.cuThreadExchangeStreamCaptureMode(mode)) }
}
