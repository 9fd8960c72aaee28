//! Threads whose id was asked for the first time and whose names have not been read yet.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Most threads that can wait; in a larger burst the first ones get no name.
const WAITING: usize = 256;

/// Ids of threads that wait, 0 for none.
static NEW: [AtomicU32; WAITING] = [const { AtomicU32::new(0) }; WAITING];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Adds a thread whose id is asked for the first time.
pub fn add(thread: u32) {
    let turn = NEXT.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = NEW.get(turn % WAITING) {
        place.store(thread, Ordering::Release);
    }
}

/// Takes out the ids of all threads that wait.
pub fn take() -> impl Iterator<Item = u32> {
    // Most places are empty: they are only read, and not written.
    let full = NEW
        .iter()
        .filter(|place| place.load(Ordering::Relaxed) != 0);
    full.map(|place| place.swap(0, Ordering::Acquire))
}
