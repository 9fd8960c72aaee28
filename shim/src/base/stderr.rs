//! Messages of the shim to the user.

use std::sync::atomic::{AtomicBool, Ordering};

/// False if the process had no stderr: a file that it opens under that number is its own.
static IS_THERE: AtomicBool = AtomicBool::new(true);

/// Looks whether there is one, before a descriptor of ours can get its number.
pub fn look() {
    // SAFETY: it only asks about a descriptor.
    let is_there = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFD) } >= 0;
    IS_THERE.store(is_there, Ordering::Relaxed);
}

/// Returns false if the process had none at the first call that was served.
pub fn is_there() -> bool {
    IS_THERE.load(Ordering::Relaxed)
}

/// One line on stderr. No buffer, no lock: the host's own stderr may be held by anyone.
pub fn say(message: &str) {
    if !is_there() {
        return;
    }
    let line = format!("gpushim: {message}\n");
    // SAFETY: the pointer and the length describe a live string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
