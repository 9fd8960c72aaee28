//! The end of the process: from its exit handlers on, the shim's threads do not call the driver,
//! which may be gone.

use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::base::boundary;

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Exit code once the process ends by `exit`; negative before.
static CODE: AtomicI32 = AtomicI32::new(-1);

unsafe extern "C" {
    /// Registers a handler as `atexit` does, with the exit status as an argument (glibc).
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Arranges that the exit code is kept before earlier registered handlers run. Only for a library
/// that stays loaded.
pub fn keep_code() {
    extern "C" fn keep(status: c_int, _: *mut c_void) {
        CODE.store(status & 0xff, Ordering::Relaxed);
    }
    // SAFETY: the handler does not unwind, and uses no argument.
    unsafe { on_exit(keep, std::ptr::null_mut()) };
}

/// Returns the end of the process in words: `exit code 0`.
pub fn in_words() -> String {
    match CODE.load(Ordering::Relaxed) {
        ..0 => "exit".to_string(),
        code => format!("exit code {code}"),
    }
}

/// True if the shim's threads must end: the process ends, or every call goes straight to the
/// driver.
pub fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Acquire) || boundary::bypassed()
}

/// Begins the end, in a handler of `atexit`. Waits for the thread that works under this lock, at
/// most about 100 ms. False: this process has nothing to end. A forked child has the handlers, but
/// no such thread.
pub fn begin(working: &Mutex<()>) -> bool {
    if boundary::bypassed_at_exit() {
        return false;
    }
    HAS_BEGUN.store(true, Ordering::Release);
    for _ in 0..100 {
        if working.try_lock().is_ok() {
            break;
        }
        sleep(Duration::from_millis(1));
    }
    true
}
