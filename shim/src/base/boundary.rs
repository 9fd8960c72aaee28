//! The boundary to the host process: it decides if the shim serves the process, stops panics, and
//! bypasses the shim in a forked child, whose calls are forwarded.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::base::settings;
use crate::base::stderr::{self, say};

/// State of the process: one of the three constants below.
static STATE: AtomicU8 = AtomicU8::new(IDLE);
/// State before the first call.
const IDLE: u8 = 0;
/// State in which calls are served.
const SERVING: u8 = 1;
/// State in a forked child, after a failure of the shim, and where `GPUSHIM=off` turns it off: every
/// call goes straight to the driver.
const BYPASSED: u8 = 2;

/// Id of the process that is served.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// True if every call must go straight to the real function.
#[inline]
pub fn bypassed() -> bool {
    STATE.load(Ordering::Relaxed) == BYPASSED
}

/// True if exit handlers have nothing to do: as for [`bypassed`], and in a child whose fork called
/// no handlers (the system call alone). Changes nothing: such a child may share the parent's
/// memory.
pub fn bypassed_at_exit() -> bool {
    bypassed() || PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// True if calls are served: a first one has arrived, and none of them failed.
#[inline]
pub fn serves() -> bool {
    // Acquire: the connections made before the first call are visible to other threads.
    STATE.load(Ordering::Acquire) == SERVING
}

/// Serves calls from now on; false if they are bypassed for good.
pub fn serve() -> bool {
    let state = if settings::is_off() {
        BYPASSED
    } else {
        SERVING
    };
    let _ = STATE.compare_exchange(IDLE, state, Ordering::Release, Ordering::Relaxed);
    !bypassed()
}

/// Prepares the boundary before the first hook does work of its own.
pub fn prepare() {
    static START: Once = Once::new();
    START.call_once(|| {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        stderr::look();
        // A child of fork shares the mapped trace and has no usable CUDA: it must not touch either.
        // SAFETY: the handler is an `extern "C"` function that only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // This hook belongs to this library's copy of std: Rust code of the host has another one.
        panic::set_hook(Box::new(|info| fail(&format!("internal error ({info})"))));
        settings::config();
    });
}

extern "C" fn in_child() {
    STATE.store(BYPASSED, Ordering::Relaxed);
}

/// Gives up for the rest of the process: reports the reason once, and forwards every later call.
pub fn fail(why: &str) {
    if STATE.swap(BYPASSED, Ordering::Relaxed) != BYPASSED {
        say(&format!(
            "{}; everything is forwarded to the driver from now on",
            why.replace('\n', " ")
        ));
    }
}

/// Runs `body`, unless every call goes straight to the real function. If it panics, the shim gives
/// up. `forward` runs instead in both cases.
#[inline]
pub fn run<T>(forward: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    if bypassed() {
        return forward();
    }
    caught(forward, body)
}

/// Runs `body` as [`run`], if it is known that the process is served.
#[inline]
pub fn caught<T>(forward: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => forward(),
    }
}
