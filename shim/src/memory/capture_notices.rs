//! Captures that begin and end: informs pools and the trace.

use gpushim_alloc::Context;

use crate::cuda::captures::{self, Open, Stream, Which};
use crate::cuda::types::Handle;
use crate::memory::caches::{self, News};
use crate::memory::{context_drain, elastic, peer_access, policy, registry, threshold};
use crate::record::events;

/// Announces a capture that is about to begin, in a mode of the driver. Returns its number.
pub fn begin(stream: Handle, per_thread: bool, mode: u32) -> u64 {
    let began = Open::new(stream, per_thread, mode);
    let number = began.number;
    if registry::any() || elastic::any() || policy::has_pools() || peer_access::any() {
        began.context.into_iter().for_each(context_drain::prepare);
    }
    captures::enters(began);
    // Without the lock: the pools wait for their calls in flight, which may ask for the captures in
    // progress.
    caches::tell(News::CaptureBegan(number));
    // After the pools: from now on none of them begins a call that would be refused.
    captures::counts(number);
    events::capture(true, stream as u64, 0);
    number
}

/// Removes the capture of this number, which did not begin.
pub fn abandon(number: u64, stream: Handle) {
    close(Which::Number(number), stream as u64, None);
    threshold::release_owed();
}

/// Removes the capture of a stream that is gone, if it was in one.
pub fn stream_gone(stream: Handle) {
    if captures::any() {
        close_of(Stream::of(stream, false), stream as u64, None);
        threshold::release_owed();
    }
}

/// Ends a capture after the driver's answer. `graph`: the graph that the driver made, if any.
pub fn ended(stream: Handle, per_thread: bool, graph: Option<u64>) {
    if graph.is_none() && captures::still_capturing(stream, per_thread) {
        return;
    }
    close_of(Stream::of(stream, per_thread), stream as u64, graph);
    threshold::release_owed();
}

/// Removes the captures of a context that has ended.
pub fn context_gone(gone: Context) {
    while captures::any() && close(Which::In(gone), 0, None) {}
}

/// Closes the capture of a stream, or else the only capture that can be this stream's.
fn close_of(stream: Stream, name: u64, graph: Option<u64>) {
    if close(Which::Of(stream), name, graph) {
        return;
    }
    if let Some(number) = captures::only_of(stream) {
        close(Which::Number(number), name, graph);
    }
}

/// Removes one capture; false if none fits.
fn close(which: Which, stream: u64, graph: Option<u64>) -> bool {
    let is_closed = captures::close(which, |number| {
        caches::tell(News::CaptureEnded(number, graph));
    });
    if is_closed {
        events::capture(false, stream, graph.unwrap_or(0));
    }
    is_closed
}
