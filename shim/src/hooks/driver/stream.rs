//! Streams: captures in progress are counted, because no fence may be made meanwhile.

use std::ffi::{c_int, c_uint, c_void};

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, SUCCESS};
use crate::cuda::{captures, streams};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::{capture_notices, passthrough, registry, stream_targets, threshold};

/// Begins a capture in a mode of the driver. `per_thread`: the stream handle 0 means the thread's
/// default stream.
fn begin(
    stream: Handle,
    per_thread: bool,
    mode: c_uint,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // Counted before the driver begins: a fence in between would invalidate the capture.
    let number = capture_notices::begin(stream, per_thread, mode);
    let result = call();
    if result != SUCCESS {
        capture_notices::abandon(number, stream);
    }
    result
}

/// Ends the capture of a stream.
fn end(
    stream: Handle,
    per_thread: bool,
    graph: *mut Handle,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = call();
    let made = if result == SUCCESS && !graph.is_null() {
        // SAFETY: the driver wrote the graph.
        Some(unsafe { *graph } as u64).filter(|graph| *graph != 0)
    } else {
        None
    };
    capture_notices::ended(stream, per_thread, made);
    result
}

/// Destroys a stream, and the capture that it may be in.
fn destroy(stream: Handle, call: impl FnOnce() -> CUresult) -> CUresult {
    stream_targets::stream_gone(stream as u64);
    captures::leaves(stream, true);
    let result = call();
    if result == SUCCESS {
        capture_notices::stream_gone(stream);
    } else {
        captures::leaves(stream, false);
    }
    result
}

/// Waits for a stream. Earlier frees on it are then complete.
fn synchronize(stream: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if !registry::all().any(|entry| entry.pool.is_above_threshold()) {
        return call();
    }
    let Some(target) = stream_targets::target(stream) else {
        return call();
    };
    threshold::synchronize(Some(target.stream.context), Some(target.stream), call)
}

driver_hooks! {
    /// Begins a capture (CUDA 10.0).
    fn cuStreamBeginCapture(stream: Handle) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        begin(stream, false, captures::GLOBAL, || unsafe { real::cuStreamBeginCapture(stream) })
    }
    /// Begins a capture (CUDA 10.0), per-thread default stream.
    fn cuStreamBeginCapture_ptsz(stream: Handle) {
        // SAFETY: as above.
        begin(stream, true, captures::GLOBAL, || unsafe { real::cuStreamBeginCapture_ptsz(stream) })
    }
    /// Begins a capture in a mode.
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) {
        // SAFETY: as above.
        begin(stream, false, mode, || unsafe { real::cuStreamBeginCapture_v2(stream, mode) })
    }
    /// Begins a capture in a mode, per-thread default stream.
    fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_uint) {
        // SAFETY: as above.
        begin(stream, true, mode, || unsafe { real::cuStreamBeginCapture_v2_ptsz(stream, mode) })
    }
    /// Begins a capture into an existing graph.
    fn cuStreamBeginCaptureToGraph(
        stream: Handle, graph: Handle, dependencies: *const c_void, data: *const c_void, n: usize,
        mode: c_uint,
    ) {
        // SAFETY: as above.
        begin(stream, false, mode, || unsafe {
            real::cuStreamBeginCaptureToGraph(stream, graph, dependencies, data, n, mode)
        })
    }
    /// Begins a capture into an existing graph, per-thread default stream.
    fn cuStreamBeginCaptureToGraph_ptsz(
        stream: Handle, graph: Handle, dependencies: *const c_void, data: *const c_void, n: usize,
        mode: c_uint,
    ) {
        // SAFETY: as above.
        begin(stream, true, mode, || unsafe {
            real::cuStreamBeginCaptureToGraph_ptsz(stream, graph, dependencies, data, n, mode)
        })
    }
    /// Ends a capture and makes its graph.
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        // SAFETY: as above.
        end(stream, false, graph, || unsafe { real::cuStreamEndCapture(stream, graph) })
    }
    /// Ends a capture and makes its graph, per-thread default stream.
    fn cuStreamEndCapture_ptsz(stream: Handle, graph: *mut Handle) {
        // SAFETY: as above.
        end(stream, true, graph, || unsafe { real::cuStreamEndCapture_ptsz(stream, graph) })
    }
    /// Waits for a stream's work.
    fn cuStreamSynchronize(stream: Handle) {
        // SAFETY: as above.
        synchronize(streams::named(stream, false), || unsafe {
            real::cuStreamSynchronize(stream)
        })
    }
    /// Waits for a stream's work, per-thread default stream.
    fn cuStreamSynchronize_ptsz(stream: Handle) {
        // SAFETY: as above.
        synchronize(streams::named(stream, true), || unsafe {
            real::cuStreamSynchronize_ptsz(stream)
        })
    }
    /// Destroys a stream, and the capture that it may be in (CUDA 2 and 3).
    fn cuStreamDestroy(stream: Handle) {
        // SAFETY: as above.
        destroy(stream, || unsafe { real::cuStreamDestroy(stream) })
    }
    /// Destroys a stream, and the capture that it may be in.
    fn cuStreamDestroy_v2(stream: Handle) {
        // SAFETY: as above.
        destroy(stream, || unsafe { real::cuStreamDestroy_v2(stream) })
    }
    /// Makes a stream, which takes device memory.
    fn cuStreamCreate(stream: *mut Handle, flags: c_uint) {
        // SAFETY: as above.
        passthrough::forward(None, || unsafe { real::cuStreamCreate(stream, flags) })
    }
    /// Makes a stream with a priority, which takes device memory.
    fn cuStreamCreateWithPriority(stream: *mut Handle, flags: c_uint, priority: c_int) {
        // SAFETY: as above.
        passthrough::forward(None, || unsafe {
            real::cuStreamCreateWithPriority(stream, flags, priority)
        })
    }
}
