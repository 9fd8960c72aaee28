//! The boundary to the host process: whether the shim serves it, what a fork means (the child's calls are forwarded), and
//! that no panic passes.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::base::settings;
use crate::base::stderr::{self, say};

/// One of the three below.
static STATE: AtomicU8 = AtomicU8::new(IDLE);
/// No call has arrived yet.
const IDLE: u8 = 0;
/// Calls are served.
const SERVING: u8 = 1;
/// In a forked child and after a failure of ours: every call goes straight to the driver.
const BYPASSED: u8 = 2;

/// The process that is served.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Whether every call must go straight to the real function.
#[inline]
pub fn bypassed() -> bool {
    STATE.load(Ordering::Relaxed) == BYPASSED
}

/// True if handlers of the end of a process have nothing to end: as [`bypassed`], and in a child whose fork
/// called no handlers (the system call alone). Changes nothing: such a child may share the parent's memory.
pub fn bypassed_at_exit() -> bool {
    bypassed() || PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// Whether calls are served: a first one has arrived, and none of them failed.
#[inline]
pub fn serves() -> bool {
    // Acquire: what was connected before the first call is seen by the others.
    STATE.load(Ordering::Acquire) == SERVING
}

/// Calls are served from now on; false if they never will be again.
pub fn serve() -> bool {
    let _ = STATE.compare_exchange(IDLE, SERVING, Ordering::Release, Ordering::Relaxed);
    !bypassed()
}

/// Prepares what must be in place before the first hook does work of its own.
pub fn prepare() {
    static START: Once = Once::new();
    START.call_once(|| {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        stderr::look();
        // A child of fork shares the mapped trace and has no usable CUDA: it must not touch either.
        // SAFETY: the handler is an `extern "C"` function that only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // This hook belongs to our own copy of std: the host's Rust code, if any, has another.
        panic::set_hook(Box::new(|info| fail(&format!("internal error ({info})"))));
        settings::config();
    });
}

extern "C" fn in_child() {
    STATE.store(BYPASSED, Ordering::Relaxed);
}

/// Gives up for the rest of the process: says why, once, and lets every call through from now on.
pub fn fail(why: &str) {
    if STATE.swap(BYPASSED, Ordering::Relaxed) != BYPASSED {
        say(&format!(
            "{}; from here on everything is forwarded to the driver",
            why.replace('\n', " ")
        ));
    }
}

/// Runs `body`, unless every call goes straight to the real function; if it panics, the shim gives up. `forward` runs
/// instead in both cases.
#[inline]
pub fn run<T>(forward: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    if bypassed() {
        return forward();
    }
    caught(forward, body)
}

/// As [`run`], where it is known that the process is served.
#[inline]
pub fn caught<T>(forward: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => forward(),
    }
}
