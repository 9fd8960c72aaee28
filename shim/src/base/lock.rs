//! Locks that serve also after a panic of a thread that held them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, also one that a thread held in a panic.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
