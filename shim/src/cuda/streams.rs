//! Streams by their handles: the meaning of a handle in this thread, and the stream's context.

use std::ptr;

use gpushim_alloc::{Context, Stream};

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{Handle, SUCCESS};
use crate::cuda::{context, device};

/// Returns the stream that a handle means. `per_thread`: as an argument of a `_ptsz` function.
#[inline]
pub fn named(stream: Handle, per_thread: bool) -> u64 {
    match stream as u64 {
        0 if per_thread => Stream::PER_THREAD,
        0 => Stream::LEGACY,
        handle => handle,
    }
}

/// Returns the context of a stream, or the one that a default stream's handle means in this thread.
pub fn context_of(handle: u64) -> Option<Context> {
    if handle <= Stream::PER_THREAD {
        return context::current();
    }
    let mut context = ptr::null_mut();
    // SAFETY: `context` is ours to write.
    let asked = thread::call(|| unsafe { real::cuStreamGetCtx(handle as Handle, &mut context) });
    (asked == SUCCESS && !context.is_null()).then_some(Context(context as u64))
}

/// Returns the ordinal of the device that a stream runs on.
pub fn device_of(handle: u64) -> Option<i32> {
    device::driver().ordinal_of(context_of(handle)?).ok()
}
