//! Holes of files: parts that were never written and read as zeros.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Returns the offset of the first byte from `from` on that may be other than zero. `None` if there
/// are only holes up to the end of the file.
pub fn data(file: &File, from: u64) -> Option<u64> {
    match seek(file, from, libc::SEEK_DATA) {
        Ok(at) => Some(at.max(from)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => None,
        // A file system without holes.
        Err(_) => Some(from),
    }
}

/// Returns the offset of the first hole from `from` on, if there is one. The end of the file is a
/// hole.
pub fn hole(file: &File, from: u64) -> Option<u64> {
    seek(file, from, libc::SEEK_HOLE).ok()
}

fn seek(file: &File, from: u64, whence: i32) -> io::Result<u64> {
    let from = libc::off_t::try_from(from).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open for as long as `file` lives. Nothing here uses its position.
    let at = unsafe { libc::lseek(file.as_raw_fd(), from, whence) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error())
}
