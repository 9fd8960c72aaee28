//! Lock of a pool's state. It is held for some tens of nanoseconds, and taken twice for each pair
//! of calls.
//!
//! Its release is a plain store: no thread is woken. A thread that waits spins first, then sleeps.
//! A thread of real-time priority must let the holder run on the processor that they share.

use parking_lot::lock_api::{GuardSend, Mutex, MutexGuard, RawMutex};
use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A value behind this lock.
pub(crate) type Lock<T> = Mutex<Raw, T>;
/// Access to the value while a thread has the lock.
pub(crate) type Locked<'a, T> = MutexGuard<'a, Raw, T>;

/// Number of looks without a pause, and of looks after the processor was offered to other threads.
const SPINS: u32 = 64;
const YIELDS: u32 = 16;
/// Sleep between later looks.
const SLEEP: Duration = Duration::from_micros(20);

/// Flag of a lock: true while a thread has it.
pub(crate) struct Raw(AtomicBool);

impl Raw {
    #[cold]
    fn wait(&self) {
        let mut looks = 0u32;
        loop {
            while self.0.load(Ordering::Relaxed) {
                looks = looks.saturating_add(1);
                if looks < SPINS {
                    hint::spin_loop();
                } else if looks < SPINS + YIELDS {
                    thread::yield_now();
                } else {
                    thread::sleep(SLEEP);
                }
            }
            if self.try_lock() {
                return;
            }
        }
    }
}

// SAFETY: one thread at a time gets `true` for the change from free to taken, and so acquires all
// writes before the previous release.
unsafe impl RawMutex for Raw {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Raw = Raw(AtomicBool::new(false));

    type GuardMarker = GuardSend;

    #[inline(always)]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        let (free, taken) = (false, true);
        self.0
            .compare_exchange(free, taken, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        let count = Lock::new(0u64);
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let mut count = count.lock();
                        let before = *count;
                        hint::black_box(&mut count);
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 4 * rounds);
        let held = count.lock();
        assert!(count.try_lock().is_none());
        drop(held);
        assert!(count.try_lock().is_some());
    }
}
