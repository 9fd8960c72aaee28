//! Notices of requests that failed, for work that another thread does about them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// The party that failed to serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum By {
    /// The driver, or a pool of this library. The caller may have a cache, flush it and ask again.
    Driver = 1,
    /// A framework, which reports the failure to its program.
    Framework = 2,
}

/// The highest party since the notice was last taken; 0 for none.
static NOTED: AtomicU8 = AtomicU8::new(0);
/// The function that a notice calls.
static ACT: OnceLock<fn()> = OnceLock::new();

/// Registers the function that each notice calls. It must not wait: the thread may hold a lock of
/// its framework.
pub fn when_noted(act: fn()) {
    // Registered once; a second registration is the same function.
    let _ = ACT.set(act);
}

/// Notes a request whose event is in the trace.
#[cold]
pub fn note(by: By) {
    let Some(act) = ACT.get() else { return };
    NOTED.fetch_max(by as u8, Ordering::AcqRel);
    act();
}

/// True if there is a notice that was not taken.
pub fn is_noted() -> bool {
    NOTED.load(Ordering::Acquire) != 0
}

/// Takes the notice, if there is one.
pub fn take() -> Option<By> {
    match NOTED.swap(0, Ordering::AcqRel) {
        0 => None,
        1 => Some(By::Driver),
        _ => Some(By::Framework),
    }
}
