//! Making the file: never over another one, private, and with all of its space.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How many taken names are tried.
const ATTEMPTS: u32 = 1000;

/// Opens a file that did not exist, at the path or at the path with `-1`, `-2`, … before its extension.
pub fn open_new(path: &Path) -> io::Result<(File, PathBuf)> {
    let path = std::path::absolute(path)?;
    let mut attempt = 0;
    loop {
        let candidate = if attempt == 0 {
            path.clone()
        } else {
            numbered(&path, attempt)
        };
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_CLOEXEC)
            .open(&candidate);
        match opened {
            Ok(file) => return Ok((file, candidate)),
            // Another trace is left alone; a folder or a device is a mistake that a number hides.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && candidate.is_file()
                    && attempt < ATTEMPTS =>
            {
                attempt += 1
            }
            Err(error) => return Err(error),
        }
    }
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Reserves space for the whole file, so that no later write can fail for want of it.
pub fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    let length =
        libc::off_t::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    // Beyond RLIMIT_FSIZE the kernel would also send SIGXFSZ, which kills.
    if bytes > file_size_limit() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    loop {
        // SAFETY: the descriptor is open for as long as `file` is borrowed.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return write_zeros(file, bytes),
            _ => return Err(error),
        }
    }
}

/// The largest file that this process may make, bytes.
pub fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the pointer is to a local rlimit, which is left as it is on failure.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// For file systems without fallocate(2).
pub fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file)?;
    Ok(())
}

/// Takes back a file that could not be completed.
pub fn remove(path: &Path) {
    // If that fails too there is nothing left to do; the first error is the one to report.
    let _ = std::fs::remove_file(path);
}
