//! The moment from which on there may be memory to give back: a pool cannot meet a request with what it has.

use std::sync::OnceLock;

/// What is done then.
static ACT: OnceLock<fn()> = OnceLock::new();

/// Says what is to be done. It is done each time, by the thread that asks for memory.
pub fn when_it_begins(act: fn()) {
    // Said once, and the same each time.
    let _ = ACT.set(act);
}

/// A pool cannot meet a request with what it has.
pub fn begins() {
    if let Some(act) = ACT.get() {
        act();
    }
}
