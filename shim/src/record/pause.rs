//! Pauses of the recording by the program, and their consequences for blocks.
//!
//! In a pause, allocations get no event. Frees of blocks that were recorded still do, so that each
//! block in the trace begins and ends. Blocks of a pause are not in the live table, by which their
//! frees are recognised at any later time. Reservations, ranges and failed requests are rare, and
//! are still recorded.

use std::sync::atomic::{AtomicBool, Ordering};

/// True while allocations are not recorded.
static PAUSED: AtomicBool = AtomicBool::new(false);
/// True once there was a pause: a free may be of a block that the trace does not have.
static EVER: AtomicBool = AtomicBool::new(false);

/// True while allocations are not recorded.
#[inline(always)]
pub fn is_on() -> bool {
    PAUSED.load(Ordering::Relaxed)
}

/// True if there may be blocks that the trace does not have.
#[inline(always)]
pub fn was_ever() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// Begins or ends a pause. True if that is a change.
pub fn set(paused: bool) -> bool {
    if paused {
        // First: a later free must recognise a block that is not recorded.
        EVER.store(true, Ordering::SeqCst);
    }
    PAUSED.swap(paused, Ordering::SeqCst) != paused
}
