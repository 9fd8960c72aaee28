//! The moment from which on there may be memory to give back: a pool cannot meet a request with what it has.

use std::sync::OnceLock;

/// The function that is called then.
static ACT: OnceLock<fn()> = OnceLock::new();

/// Registers the function. The thread that asks for memory calls it each time.
pub fn when_it_begins(act: fn()) {
    // Registered once; a second registration is the same function.
    let _ = ACT.set(act);
}

/// A pool cannot meet a request with what it has.
pub fn begins() {
    if let Some(act) = ACT.get() {
        act();
    }
}
