//! What the shim keeps per thread: all in one place, so that a hook touches thread-local storage once.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::newcomers;

/// The state of one thread. It has no destructor: work at a thread's end is done by a separate pthread key.
pub struct Thread {
    /// Set while we call the driver ourselves: what arrives then is the driver calling itself.
    pub inside: Cell<bool>,
    /// The context that was current when `epoch` was noted; 0: none.
    pub context: Cell<u64>,
    /// The value of `context::EPOCH` at which `context` was read; 0: not known.
    pub epoch: Cell<u64>,
    /// The ordinal of the device of `context`.
    pub device: Cell<u8>,
    /// Counts calls for [`one_in`].
    sample: Cell<u32>,
    /// Kernel thread id; 0: not asked yet.
    tid: Cell<u32>,
    /// Whether it is the process's first thread; known with `tid`.
    is_main: Cell<bool>,
    /// See [`serial`]; 0: not given yet.
    serial: Cell<u64>,
    /// The stream that was resolved last (0: none), with its context, the address of the pool that serves it, and the
    /// value of `pools::EPOCH` at that time.
    pub stream: Cell<u64>,
    pub stream_context: Cell<u64>,
    pub stream_entry: Cell<*const ()>,
    pub stream_epoch: Cell<u64>,
    /// The pool of a context that was asked for last, by its address.
    pub whole_entry: Cell<*const ()>,
    /// The node of the ranges that are open on it; 0: none.
    pub ranges: Cell<u32>,
    /// Whether it cannot be cancelled now, by [`Uncancelled`].
    uncancelled: Cell<bool>,
    /// Stacks that were walked, as far as [`walked_before`] counts.
    walked: Cell<u32>,
    /// Nanoseconds spent in the driver's memory calls since the hook was entered.
    pub driver_ns: Cell<u64>,
    /// Whether it recorded an event since PyTorch announced a tensor in it.
    pub has_recorded: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(false),
            context: Cell::new(0),
            epoch: Cell::new(0),
            device: Cell::new(u8::MAX),
            sample: Cell::new(0),
            tid: Cell::new(0),
            is_main: Cell::new(false),
            serial: Cell::new(0),
            stream: Cell::new(0),
            stream_context: Cell::new(0),
            stream_entry: Cell::new(std::ptr::null()),
            stream_epoch: Cell::new(0),
            whole_entry: Cell::new(std::ptr::null()),
            ranges: Cell::new(0),
            uncancelled: Cell::new(false),
            walked: Cell::new(0),
            driver_ns: Cell::new(0),
            has_recorded: Cell::new(false),
        }
    };
}

/// The calling thread's state.
#[inline]
pub fn with<R>(f: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(f)
}

/// The calling thread's kernel id.
#[inline]
pub fn tid() -> u32 {
    with(|t| {
        if t.tid.get() == 0 {
            first_seen(t);
        }
        t.tid.get()
    })
}

/// Whether the calling thread is the process's first one. In a child that another thread forked it says no.
#[inline]
pub fn is_main() -> bool {
    with(|t| {
        if t.tid.get() == 0 {
            first_seen(t);
        }
        t.is_main.get()
    })
}

#[cold]
fn first_seen(thread: &Thread) {
    // SAFETY: gettid has no preconditions.
    let id = unsafe { libc::gettid() } as u32;
    thread.tid.set(id);
    thread.is_main.set(id == std::process::id());
    newcomers::add(id);
}

/// Whether a thread of this process with this kernel id lives. The kernel gives the ids of threads that
/// have ended to new ones.
pub fn lives(tid: u32) -> bool {
    // SAFETY: signal 0 is sent to nothing; the call only looks.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    found == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// A number that no other thread of this process has or had, from 1: the kernel gives the ids of threads
/// that have ended to new ones, whose default streams are others.
#[inline]
pub fn serial() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    with(|t| {
        if t.serial.get() == 0 {
            t.serial.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        t.serial.get()
    })
}

/// True for one in `n` calls of this thread.
#[inline]
pub fn one_in(n: u32) -> bool {
    with(|t| {
        let next = t.sample.get().wrapping_add(1);
        t.sample.set(next);
        next.is_multiple_of(n)
    })
}

/// Whether the calling thread has called this so often before.
#[inline]
pub fn walked_before(times: u32) -> bool {
    with(|t| {
        let walked = t.walked.get();
        if walked < times {
            t.walked.set(walked + 1);
        }
        walked >= times
    })
}

/// Whether the calling thread is in a driver call that we made.
#[inline]
pub fn inside() -> bool {
    with(|t| t.inside.get())
}

unsafe extern "C" {
    /// POSIX; not among what the `libc` crate declares.
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: libc::c_int = 1;

/// While it lives, the thread is not cancelled: a request for that waits. The unwinding of a cancelled
/// thread cannot pass through frames of ours, and would end the process there.
pub struct Uncancelled {
    /// The state before; `None` within another one's life.
    before: Option<libc::c_int>,
}

impl Uncancelled {
    /// From now on.
    #[inline]
    pub fn new() -> Uncancelled {
        let before = with(|t| {
            let is_outer = !t.uncancelled.replace(true);
            is_outer.then(|| {
                let mut before = 0;
                // SAFETY: `before` is ours to write; the state is one of the two that there are.
                unsafe { pthread_setcancelstate(CANCEL_DISABLE, &mut before) };
                before
            })
        });
        Uncancelled { before }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        if let Some(before) = self.before {
            with(|t| t.uncancelled.set(false));
            // SAFETY: the state is what the thread had; where the one before goes is not asked for.
            unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
        }
    }
}

/// Calls into the driver such that hooks that it reaches itself pass straight through.
#[inline]
pub fn call<R>(f: impl FnOnce() -> R) -> R {
    with(|t| {
        let before = t.inside.replace(true);
        let result = f();
        t.inside.set(before);
        result
    })
}

/// As [`call`], adding the time it took to `driver_ns`.
pub fn timed<R>(f: impl FnOnce() -> R) -> R {
    let start = std::time::Instant::now();
    let result = call(f);
    with(|t| {
        t.driver_ns
            .set(t.driver_ns.get() + start.elapsed().as_nanos() as u64);
    });
    result
}
