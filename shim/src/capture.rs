//! Which streams are capturing: while one is, the pool makes no fences and keeps what graphs may hold.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpushim_core::pool::Context;

use crate::driver::SUCCESS;
use crate::interpose::driver::Handle;
use crate::interpose::driver::calls::real;
use crate::{allocator, context, mempools, recorder, thread};

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`, the handles that name no stream object.
const PER_THREAD: u64 = 2;

/// A stream by what it is, whichever way it was named.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stream {
    handle: u64,
    /// The thread whose default stream it is; 0 for all others.
    thread: u64,
}

impl Stream {
    fn of(handle: Handle, per_thread: bool) -> Self {
        let handle = match handle as u64 {
            0 if per_thread => PER_THREAD,
            handle => handle,
        };
        let thread = if handle == PER_THREAD {
            thread::serial()
        } else {
            0
        };
        Stream { handle, thread }
    }
}

/// Streams that capture, with the context in which they began.
static OPEN: Mutex<Vec<(Stream, Option<Context>)>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether any stream captures.
#[inline]
pub fn any() -> bool {
    COUNT.load(Ordering::Acquire) != 0
}

/// Runs `f` with the number of streams that capture, while none begins or ends: for what must hear of
/// all of them.
pub fn with_count<R>(f: impl FnOnce(usize) -> R) -> Option<R> {
    OPEN.lock().ok().map(|open| f(open.len()))
}

/// A capture is about to begin.
pub fn begin(stream: Handle, per_thread: bool) {
    let began = (Stream::of(stream, per_thread), context::current());
    if let Ok(mut open) = OPEN.lock() {
        open.push(began);
        COUNT.store(open.len(), Ordering::Release);
        if let Some(pool) = allocator::pool() {
            pool.capture_began();
        }
        mempools::all().for_each(|entry| entry.pool.capture_began());
    }
    recorder::capture(true, stream as u64, 0);
}

/// A capture that did not begin, or whose stream is gone. Nothing happens if there is none.
pub fn abandon(stream: Handle, per_thread: bool) {
    if any() {
        let of = Stream::of(stream, per_thread);
        close(|s, _| s == of, stream as u64, None);
    }
}

/// The driver was asked to end a capture, and made `graph` of it or nothing.
pub fn ended(stream: Handle, per_thread: bool, graph: Option<u64>) {
    if graph.is_none() && still_capturing(stream, per_thread) {
        return;
    }
    let of = Stream::of(stream, per_thread);
    close(|s, _| s == of, stream as u64, graph);
}

/// A context ended with the captures of its streams.
pub fn context_gone(gone: Context) {
    while any() && close(|_, context| context == Some(gone), 0, None) {}
}

/// Takes one capture out; false if none fits.
fn close(fits: impl Fn(Stream, Option<Context>) -> bool, stream: u64, graph: Option<u64>) -> bool {
    let Ok(mut open) = OPEN.lock() else {
        return false;
    };
    let Some(at) = open.iter().position(|&(s, c)| fits(s, c)) else {
        return false;
    };
    open.swap_remove(at);
    COUNT.store(open.len(), Ordering::Release);
    if let Some(pool) = allocator::pool() {
        pool.capture_ended(graph);
    }
    mempools::all().for_each(|entry| entry.pool.capture_ended(graph));
    drop(open);
    recorder::capture(false, stream, graph.unwrap_or(0));
    true
}

/// A failed end leaves some captures open: the wrong thread asked, or the wrong stream.
fn still_capturing(stream: Handle, per_thread: bool) -> bool {
    let mut status = 0;
    // SAFETY: `status` is ours to write.
    let asked = thread::call(|| unsafe {
        if per_thread {
            real::cuStreamIsCapturing_ptsz(stream, &mut status)
        } else {
            real::cuStreamIsCapturing(stream, &mut status)
        }
    });
    asked == SUCCESS && status != 0
}
