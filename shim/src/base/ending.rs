//! The end of the process: from its handlers on, threads of ours leave the driver alone, which may be gone.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::base::boundary;

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// True if threads of ours are to end: the process ends, or every call goes straight to the driver.
pub fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Acquire) || boundary::bypassed()
}

/// Begins the end, in a handler of `atexit`. Waits for the thread that works under this lock, 100 ms at most.
/// False: this process has nothing to end. A forked child has the handlers, but no such thread.
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
