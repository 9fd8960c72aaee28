//! Files that several test processes want at once.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Held by one process at a time; let go when dropped.
pub struct Lock(File);

impl Lock {
    /// Waits for the lock of this name.
    pub fn take(path: &Path) -> Result<Lock, String> {
        let failed = |error: std::io::Error| format!("failed to lock {}: {error}", path.display());
        let file = File::create(path).map_err(failed)?;
        // SAFETY: the descriptor is open for as long as `file` lives.
        match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } {
            0 => Ok(Lock(file)),
            _ => Err(failed(std::io::Error::last_os_error())),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: as above; closing the file would do it too.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}
