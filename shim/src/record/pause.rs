//! Whether the program paused the recording, and what follows from that for blocks.
//!
//! While it is paused, allocations get no event; frees of the blocks that were recorded still do, so that what is in the
//! trace stays whole: each block in it begins and ends as it did. Blocks of a pause are not in the live table, and by
//! that their frees are known, whenever they come. Reservations, ranges and failed requests are rare, and are recorded on.

use std::sync::atomic::{AtomicBool, Ordering};

/// Allocations are not recorded now.
static PAUSED: AtomicBool = AtomicBool::new(false);
/// They were not at some time: a free may be of a block that the trace does not have.
static EVER: AtomicBool = AtomicBool::new(false);

/// Whether allocations are left out now.
#[inline(always)]
pub fn is_on() -> bool {
    PAUSED.load(Ordering::Relaxed)
}

/// Whether there may be blocks that the trace does not have.
#[inline(always)]
pub fn was_ever() -> bool {
    EVER.load(Ordering::Relaxed)
}

/// Begins or ends a pause; whether that is a change.
pub fn set(paused: bool) -> bool {
    if paused {
        // First: a block that is left out must be known as such when it is freed.
        EVER.store(true, Ordering::SeqCst);
    }
    PAUSED.swap(paused, Ordering::SeqCst) != paused
}
