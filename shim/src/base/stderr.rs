//! Messages of the shim to the user.

/// One line on stderr. No buffer, no lock: the host's own stderr may be held by anyone.
pub fn say(message: &str) {
    let line = format!("gpushim: {message}\n");
    // SAFETY: the pointer and the length describe a live string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
