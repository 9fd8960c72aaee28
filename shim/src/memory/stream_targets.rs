//! The pool that serves a stream. Each thread remembers the stream that it used last.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;

use gpushim_alloc::{Context, Stream};

use crate::base::{boundary, thread};
use crate::cuda::{context, device, streams};
use crate::memory::pool_life;
use crate::memory::registry::{self, RegisteredPool};

/// A stream and the pool that serves it.
#[derive(Clone, Copy)]
pub struct Target {
    pub stream: Stream,
    /// Its device's current pool, if this library serves it.
    pub entry: Option<&'static RegisteredPool>,
}

/// Resolves a stream handle other than 0 in this thread. `None`: it is no stream, or an unknown
/// one.
#[inline]
pub fn target(handle: u64) -> Option<Target> {
    let special = handle <= Stream::PER_THREAD;
    let context = if special { context::current()?.0 } else { 0 };
    let known = thread::with(|t| {
        let same = t.stream.get() == handle
            && t.stream_epoch.get() == registry::epoch()
            && (!special || t.stream_context.get() == context);
        same.then(|| Target {
            stream: Stream {
                context: Context(t.stream_context.get()),
                handle,
                thread: if handle == Stream::PER_THREAD {
                    thread::serial()
                } else {
                    0
                },
            },
            // SAFETY: null, or the address of an entry, which is never freed.
            entry: unsafe { t.stream_entry.get().cast::<RegisteredPool>().as_ref() },
        })
    });
    match known {
        Some(target) => Some(target),
        None => ask(handle),
    }
}

#[cold]
fn ask(handle: u64) -> Option<Target> {
    let epoch = registry::epoch();
    let context = streams::context_of(handle)?;
    let device = device::driver().ordinal_of(context).ok()?;
    let entry = pool_life::current(device);
    let thread = if handle == Stream::PER_THREAD {
        has_streams();
        thread::serial()
    } else {
        0
    };
    thread::with(|t| {
        t.stream.set(handle);
        t.stream_context.set(context.0);
        t.stream_entry
            .set(entry.map_or(ptr::null(), |entry| ptr::from_ref(entry).cast()));
        t.stream_epoch.set(epoch);
    });
    let stream = Stream {
        context,
        handle,
        thread,
    };
    Some(Target { stream, entry })
}

/// Arranges that pools are informed of this thread's end: its default streams are in use.
#[cold]
fn has_streams() {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is ours to write; the function does not unwind.
        (unsafe { libc::pthread_key_create(&mut key, Some(ended)) } == 0).then_some(key)
    });
    if let Some(key) = key {
        // A pthread key and not a Rust destructor: the program's destructors that use the streams
        // run before it. If one runs later, this destructor is called again. SAFETY: the key is
        // valid; the value is not dereferenced.
        unsafe { libc::pthread_setspecific(*key, thread::serial() as *const c_void) };
    }
}

/// Ends the default streams of a thread that used them: the destructor of its pthread key.
extern "C" fn ended(serial: *mut c_void) {
    // Forgets the thread's last stream: if the thread uses a stream again, it is registered again.
    thread::with(|t| t.stream_epoch.set(0));
    boundary::run(|| (), || thread_gone(serial as u64));
}

/// Removes a stream that is about to be destroyed.
pub fn stream_gone(handle: u64) {
    registry::changed();
    if !registry::any() {
        return;
    }
    if let Some(target) = target(handle) {
        registry::all().for_each(|entry| entry.pool.stream_gone(device::driver(), target.stream));
    }
    registry::changed();
}

/// Removes the default streams of a thread that has ended.
fn thread_gone(thread: u64) {
    registry::all().for_each(|entry| entry.pool.thread_gone(device::driver(), thread));
}
