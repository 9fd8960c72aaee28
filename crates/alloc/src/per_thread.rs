//! Parts of a pool for single threads, so that threads do not wait for each other.

use spin::mutex::{SpinMutex, SpinMutexGuard};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Number of parts that a pool has for threads: the bits of a word. More threads than this share
/// parts.
pub(crate) const PARTS: usize = 64;

/// Number of times that a thread tries to lock a part before it sleeps.
const LOOKS: usize = 100;
/// Time that the thread then sleeps.
const NAP: Duration = Duration::from_micros(50);

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Gives the calling thread this part, as if it were another thread.
#[cfg(test)]
pub(crate) fn have(part: usize) {
    OWN.set(part % PARTS);
}

/// Number of the calling thread's part, in every pool.
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

/// Part of one thread, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Part<T>(SpinMutex<T>);

impl<T> Part<T> {
    /// Locks the part. Its own thread nearly always finds it free, and a lock released by a plain
    /// store is the cheapest.
    #[inline(always)]
    pub fn lock(&self) -> SpinMutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(part) => part,
            None => self.wait(),
        }
    }

    /// Waits for the lock and sleeps between attempts: a thread of real-time priority would
    /// otherwise keep the processor from the holder.
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
