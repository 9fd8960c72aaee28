//! State of the shim per thread, all in one place, so that a hook accesses thread-local storage
//! once.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::newcomers;

/// The state of one thread. It has no destructor: a separate pthread key does the work at a
/// thread's end.
pub struct Thread {
    /// True during a driver call of the shim: a hook that is reached then was called by the driver
    /// itself.
    pub inside: Cell<bool>,
    /// The context that was current when `epoch` was set; 0: none.
    pub context: Cell<u64>,
    /// The value of `context::EPOCH` at which `context` was read; 0: not known.
    pub epoch: Cell<u64>,
    /// The ordinal of the device of `context`.
    pub device: Cell<u8>,
    /// Counts calls for [`one_in`].
    sample: Cell<u32>,
    /// Kernel id of the thread; 0 until it is needed.
    tid: Cell<u32>,
    /// True for the process's first thread; set with `tid`.
    is_main: Cell<bool>,
    /// Number from [`serial`]; 0 until it is needed.
    serial: Cell<u64>,
    /// The stream that was resolved last (0: none), with its context, the address of the pool that
    /// serves it, and the value of `registry::EPOCH` at that time.
    pub stream: Cell<u64>,
    pub stream_context: Cell<u64>,
    pub stream_entry: Cell<*const ()>,
    pub stream_epoch: Cell<u64>,
    /// Address of the last context's pool of driver allocations.
    pub whole_entry: Cell<*const ()>,
    /// The node of the thread's open ranges; 0: none.
    pub ranges: Cell<u32>,
    /// True while an [`Uncancelled`] keeps the thread from cancellation.
    uncancelled: Cell<bool>,
    /// Number of walked stacks, as far as [`walked_before`] counts.
    walked: Cell<u32>,
    /// Nanoseconds spent in the driver's memory calls since the hook was entered.
    pub driver_ns: Cell<u64>,
    /// True if the thread recorded an event since PyTorch last announced a tensor in it.
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

/// Runs `f` with the calling thread's state.
#[inline]
pub fn with<R>(f: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(f)
}

/// Returns the calling thread's kernel id.
#[inline]
pub fn tid() -> u32 {
    with(|t| {
        if t.tid.get() == 0 {
            first_seen(t);
        }
        t.tid.get()
    })
}

/// True if the calling thread is the process's first one. False in a child that another thread
/// forked.
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

/// True if a thread of this process with this kernel id lives. The kernel reuses the ids of ended
/// threads.
pub fn lives(tid: u32) -> bool {
    // SAFETY: signal 0 is sent to no thread; the call only checks.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) };
    found == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Returns a number that no other thread of this process has or had, from 1. The kernel reuses the
/// ids of ended threads, whose default streams are different ones.
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

/// True if the calling thread has called this `times` times before.
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

/// True if the calling thread is in a driver call of the shim.
#[inline]
pub fn inside() -> bool {
    with(|t| t.inside.get())
}

unsafe extern "C" {
    /// POSIX function that the `libc` crate does not declare.
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// POSIX's `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: libc::c_int = 1;

/// Guard that keeps the thread from cancellation: a request for it waits. The unwinding of a
/// cancelled thread cannot pass through Rust frames, and would end the process there.
pub struct Uncancelled {
    /// The state before; `None` if an outer guard lives.
    before: Option<libc::c_int>,
}

impl Uncancelled {
    /// Disables cancellation until the guard is dropped.
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
            // SAFETY: the state is the one that the thread had; null is allowed for the previous
            // one.
            unsafe { pthread_setcancelstate(before, std::ptr::null_mut()) };
        }
    }
}

/// Calls into the driver. Hooks that the driver itself reaches pass straight through.
#[inline]
pub fn call<R>(f: impl FnOnce() -> R) -> R {
    with(|t| {
        let before = t.inside.replace(true);
        let result = f();
        t.inside.set(before);
        result
    })
}

/// Calls into the driver as [`call`], and adds the time to `driver_ns`.
pub fn timed<R>(f: impl FnOnce() -> R) -> R {
    let start = std::time::Instant::now();
    let result = call(f);
    with(|t| {
        t.driver_ns
            .set(t.driver_ns.get() + start.elapsed().as_nanos() as u64);
    });
    result
}
