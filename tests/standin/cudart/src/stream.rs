//! Streams, stream capture and host functions.

use std::ffi::{c_int, c_uint, c_void};

use crate::driver::{Handle, HostFunction};

entries! {
    /// Makes a stream that the legacy default stream waits for.
    fn cudaStreamCreate(stream: *mut Handle) |driver| { forward!(driver.cuStreamCreate(stream, 0)) }

    /// Makes a stream. Flag 1 makes it independent of the legacy default stream.
    fn cudaStreamCreateWithFlags(stream: *mut Handle, flags: c_uint) |driver| { forward!(driver.cuStreamCreate(stream, flags)) }

    /// Makes a stream with a priority.
    fn cudaStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int) |driver| {
        forward!(driver.cuStreamCreateWithPriority(stream, flags, priority))
    }

    /// Destroys a stream; its work continues.
    fn cudaStreamDestroy(stream: Handle) |driver| { forward!(driver.cuStreamDestroy(stream)) }

    /// Waits for all work of a stream.
    fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz(stream: Handle) |driver| { forward!(driver.cuStreamSynchronize(stream)) }

    /// Reports if all work of a stream is complete; error 600 if not.
    fn cudaStreamQuery | cudaStreamQuery_ptsz(stream: Handle) |driver| { forward!(driver.cuStreamQuery(stream)) }

    /// Orders later work on the stream after the event.
    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz(stream: Handle, event: Handle, flags: c_uint) |driver| {
        forward!(driver.cuStreamWaitEvent(stream, event, flags))
    }

    /// Returns the flags of a stream.
    fn cudaStreamGetFlags | cudaStreamGetFlags_ptsz(stream: Handle, flags: *mut c_uint) |driver| {
        forward!(driver.cuStreamGetFlags(stream, flags))
    }

    /// Returns the priority of a stream.
    fn cudaStreamGetPriority | cudaStreamGetPriority_ptsz(stream: Handle, priority: *mut c_int) |driver| {
        forward!(driver.cuStreamGetPriority(stream, priority))
    }

    /// Returns the number of a stream, unique in the process.
    fn cudaStreamGetId | cudaStreamGetId_ptsz(stream: Handle, id: *mut u64) |driver| { forward!(driver.cuStreamGetId(stream, id)) }

    /// Calls a host function in the stream's order.
    fn cudaLaunchHostFunc | cudaLaunchHostFunc_ptsz(stream: Handle, function: Option<HostFunction>, data: *mut c_void) |driver| {
        forward!(driver.cuLaunchHostFunc(stream, function, data))
    }

    /// Begins a capture: work on the stream is recorded and not performed.
    fn cudaStreamBeginCapture | cudaStreamBeginCapture_ptsz(stream: Handle, mode: c_int) |driver| {
        forward!(driver.cuStreamBeginCapture(stream, mode))
    }

    /// Ends a capture and returns the graph of the recorded work.
    fn cudaStreamEndCapture | cudaStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) |driver| {
        forward!(driver.cuStreamEndCapture(stream, graph))
    }

    /// Reports the capture status of a stream.
    fn cudaStreamIsCapturing | cudaStreamIsCapturing_ptsz(stream: Handle, status: *mut c_int) |driver| {
        forward!(driver.cuStreamIsCapturing(stream, status))
    }

    /// Exchanges the thread's capture mode. The mode decides which unsafe calls the thread may
    /// make.
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut c_int) |driver| { forward!(driver.cuThreadExchangeStreamCaptureMode(mode)) }
}
