//! Entry of calls that arrive at exported functions and hooks.

use crate::base::{boundary, thread};
use crate::hooks::driver;
use crate::process::start;

/// Runs the body of a hook. If it panics, the shim gives up, and the call goes to the real
/// function. The first call connects the floors.
#[inline]
pub fn serve<T>(forward: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    if !boundary::serves() && (boundary::bypassed() || !start::begin(driver::write_facts)) {
        return forward();
    }
    boundary::caught(forward, body)
}

/// Runs the body of a hook as [`serve`], unless the driver is calling itself.
#[inline]
pub fn serve_call<T>(forward: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    if thread::inside() {
        return forward();
    }
    serve(forward, body)
}
