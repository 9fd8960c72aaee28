//! What each thread has for itself in a pool, so that threads do not wait for each other.

use spin::mutex::{SpinMutex, SpinMutexGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Parts that a pool has for threads: the bits of a word. More threads than these share parts.
pub(crate) const PARTS: usize = 64;

/// How often a thread looks whether a part is free before it sleeps.
const LOOKS: usize = 100;
/// For how long it sleeps then, each time.
const NAP: Duration = Duration::from_micros(50);

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The calling thread has this part from here on, as if it were another one.
#[cfg(test)]
pub(crate) fn have(part: usize) {
    OWN.set(part % PARTS);
}

/// The calling thread's part, in every pool.
#[inline]
pub(crate) fn own() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) % PARTS);
        }
        own.get()
    })
}

/// One thread's part, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Part<T>(SpinMutex<T>);

impl<T> Part<T> {
    /// What is in it. Its own thread nearly always finds it free, and a lock that is let go by a plain store is
    /// the cheapest.
    #[inline(always)]
    pub fn lock(&self) -> SpinMutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(part) => part,
            None => self.wait(),
        }
    }

    /// A thread that waits sleeps: one of real-time priority would otherwise keep the processor from the
    /// one that it waits for.
    #[cold]
    fn wait(&self) -> SpinMutexGuard<'_, T> {
        loop {
            for _ in 0..LOOKS {
                if let Some(part) = self.0.try_lock() {
                    return part;
                }
                std::hint::spin_loop();
            }
            std::thread::sleep(NAP);
        }
    }
}
