//! Messages of the shim to the user.

use std::sync::atomic::{AtomicBool, Ordering};

/// False if the process had no stderr. A file that it opens under that number is then its own.
static IS_THERE: AtomicBool = AtomicBool::new(true);

/// Looks for stderr before a descriptor of this library can get its number.
pub fn look() {
    // SAFETY: it only asks about a descriptor.
    let is_there = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFD) } >= 0;
    IS_THERE.store(is_there, Ordering::Relaxed);
}

/// False if the process had no stderr at the first served call.
pub fn is_there() -> bool {
    IS_THERE.load(Ordering::Relaxed)
}

/// Writes one line to stderr, without a buffer or a lock: a thread may hold the lock of the host's
/// own stderr.
pub fn say(message: &str) {
    if !is_there() {
        return;
    }
    let line = format!("gpushim: {message}\n");
    // SAFETY: the pointer and the length describe a live string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
