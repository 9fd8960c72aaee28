//! The process around us: whether the shim serves it, and what happens when it forks or we fail.

use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use gpushim_core::config::{Config, Log, Resolved, StreamPolicy};
use gpushim_core::pool::Policy;

use crate::base::preloaded;

/// Set in a forked child and after a failure of ours: every call then goes straight to the driver.
static BYPASS: AtomicBool = AtomicBool::new(false);

static RESOLVED: OnceLock<Resolved> = OnceLock::new();

/// Whether every call must go straight to the real function.
#[inline]
pub fn bypassed() -> bool {
    BYPASS.load(Ordering::Relaxed)
}

/// The configuration in force.
#[inline]
pub fn config() -> &'static Config {
    &resolved().config
}

/// The configuration with where it came from, read from the environment at the first CUDA call.
#[inline]
pub fn resolved() -> &'static Resolved {
    RESOLVED.get_or_init(|| {
        let mut resolved = if is_privileged() {
            Resolved::from_lookup(variable)
        } else {
            Resolved::from_env()
        };
        if !preloaded::is_ours() {
            // Without sight of its streams and captures no memory of the process can be handed out twice.
            (resolved.config.policy, resolved.config.stream_policy) =
                (Policy::Off, StreamPolicy::Off);
        }
        if is_privileged() {
            // No file in whatever folder it runs in, and nothing but the driver's own memory.
            (resolved.config.policy, resolved.config.stream_policy) =
                (Policy::Off, StreamPolicy::Off);
            resolved.config.trace = None;
        }
        if resolved.config.log >= Log::Warn {
            for problem in &resolved.problems {
                say(&problem.to_string());
            }
        }
        resolved
    })
}

/// An environment variable that tells us what to do. Of a process with more rights than its environment's author has
/// there is none.
pub fn variable(name: &str) -> Option<OsString> {
    if is_privileged() {
        return None;
    }
    std::env::var_os(name)
}

/// Whether the process has rights that the user who started it has not (set-user-id and the like), as the kernel says.
pub fn is_privileged() -> bool {
    // SAFETY: getauxval has no preconditions.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Prepares what must stand before the first hook does anything of its own.
pub fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        // A child of fork shares the mapped trace and has no usable CUDA: it must not touch either.
        // SAFETY: the handler is an `extern "C"` function that only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        // This hook belongs to our own copy of std: the host's Rust code, if any, has another.
        panic::set_hook(Box::new(|info| fail(&format!("internal error ({info})"))));
        config();
    });
}

extern "C" fn in_child() {
    BYPASS.store(true, Ordering::Relaxed);
}

/// Gives up for the rest of the process: says why, once, and lets every call through from now on.
pub fn fail(why: &str) {
    if !BYPASS.swap(true, Ordering::Relaxed) {
        say(&format!(
            "{}; from here on everything is forwarded to the driver",
            why.replace('\n', " ")
        ));
    }
}

/// Runs the body of a hook; if it panics, the shim gives up and the call goes to the real function.
#[inline]
pub fn boundary<T>(forward: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    if bypassed() {
        return forward();
    }
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(_) => forward(),
    }
}

/// One line on stderr. No buffer, no lock: the host's own stderr may be held by anyone.
pub fn say(message: &str) {
    let line = format!("gpushim: {message}\n");
    // SAFETY: the pointer and the length describe a live string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
