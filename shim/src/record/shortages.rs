//! Notice of requests that could not be met, for what is done about them on another thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Who could not meet a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum By {
    /// The driver, or a pool of ours. Who asked may have a cache, give it back and ask again.
    Driver = 1,
    /// A framework, which tells its program.
    Framework = 2,
}

/// The highest of those since it was last taken; 0 for none.
static NOTED: AtomicU8 = AtomicU8::new(0);
/// The function that a notice calls.
static ACT: OnceLock<fn()> = OnceLock::new();

/// Registers what is called at each notice. It must not wait: the thread may hold a lock of its framework.
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

/// Returns true if there is one that was not taken.
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
