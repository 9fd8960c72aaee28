//! Each thread's current node in the tree of open ranges.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::thread;

/// The node of the thread that pushed last, for threads without ranges of their own.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Returns the node of the ranges to which this thread's events belong now. Without own ranges, it
/// is the node of the thread that pushed last: PyTorch's autograd threads work for the phase of the
/// main thread.
#[inline(always)]
pub fn current() -> u32 {
    match thread::with(|t| t.ranges.get()) {
        0 => PROCESS.load(Ordering::Relaxed),
        own => own,
    }
}

/// Sets the calling thread's own node. `leads`: it is the thread that pushed last.
pub fn set(node: u32, leads: bool) {
    thread::with(|t| t.ranges.set(node));
    if leads {
        PROCESS.store(node, Ordering::Relaxed);
    }
}
