//! The moment when there may first be memory to free: a pool cannot serve a request with the memory
//! that it has.

use std::sync::OnceLock;

/// Function that is called at that moment.
static ACT: OnceLock<fn()> = OnceLock::new();

/// Registers the function. Each thread that asks for new memory calls it each time.
pub fn when_it_begins(act: fn()) {
    // Registered once; a second registration is the same function.
    let _ = ACT.set(act);
}

/// Calls the function: a pool cannot serve a request with the memory that it has.
pub fn begins() {
    if let Some(act) = ACT.get() {
        act();
    }
}
