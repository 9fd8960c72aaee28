//! Creation of the file: private, and never over an existing one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Number of names that are tried if other processes take them at the same moment.
const ATTEMPTS: u32 = 1000;

/// Creates a file at the path, or at the path with `-1`, `-2`, … before its extension. The number
/// is the first one after the taken ones, however many they are. Missing folders are made.
pub fn open_new(path: &Path) -> io::Result<(File, PathBuf)> {
    let path = std::path::absolute(path)?;
    let opened = match open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            folder.and_then(|()| open(&path))
        }
        opened => opened,
    };
    match opened {
        Ok(file) => return Ok((file, path)),
        // Another trace is not overwritten. A folder or a device is a mistake that a number would
        // hide.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => {}
        Err(error) => return Err(error),
    }
    let mut number = first_free(&path);
    for _ in 0..ATTEMPTS {
        let candidate = numbered(&path, number);
        match open(&candidate) {
            Ok(file) => return Ok((file, candidate)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

fn open(path: &Path) -> io::Result<File> {
    let file = gpushim_descriptors::create(path)?;
    write_in_place(&file);
    Ok(file)
}

/// Returns a free number after a taken one, found by a binary search.
fn first_free(path: &Path) -> u64 {
    let is_taken = |number| numbered(path, number).symlink_metadata().is_ok();
    let (mut taken, mut free) = (0, 1);
    while is_taken(free) && free < 1 << 40 {
        (taken, free) = (free, free * 2);
    }
    while free - taken > 1 {
        let middle = taken + (free - taken) / 2;
        if is_taken(middle) {
            taken = middle;
        } else {
            free = middle;
        }
    }
    free
}

fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_os_string();
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Makes a copy-on-write file system write this file in place. Then space taken once is enough for
/// later writes.
fn write_in_place(file: &File) {
    const BTRFS: i64 = 0x9123_683e;
    const FS_NOCOW_FL: libc::c_int = 0x0080_0000;
    // SAFETY: statfs is plain numbers, for which zeros are valid.
    let mut of: libc::statfs = unsafe { std::mem::zeroed() };
    let fd = file.as_raw_fd();
    // SAFETY: the descriptor is open while `file` is borrowed, the pointers are to locals of the
    // right types.
    unsafe {
        if libc::fstatfs(fd, &mut of) != 0 || of.f_type as i64 != BTRFS {
            return;
        }
        let mut flags: libc::c_int = 0;
        if libc::ioctl(fd, libc::FS_IOC_GETFLAGS, &mut flags) == 0 {
            flags |= FS_NOCOW_FL;
            // Without the flag a full disk is a fault, which `guard` catches.
            libc::ioctl(fd, libc::FS_IOC_SETFLAGS, &flags);
        }
    }
}

/// Gives a file its length, without space on the disk.
pub fn set_length(file: &File, bytes: u64) -> io::Result<()> {
    if i64::try_from(bytes).is_err() {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    // Beyond RLIMIT_FSIZE the kernel would also send SIGXFSZ, which ends the process.
    if bytes > file_size_limit() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.set_len(bytes)
}

/// Returns the size of the largest file that this process may make, bytes.
pub fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the pointer is to a local rlimit, which is left as it is on failure.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// Writes zeros, for file systems without fallocate(2).
pub fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file)?;
    Ok(())
}

/// Removes a file that could not be completed.
pub fn remove(path: &Path) {
    // If this fails too, the first error is still the one to report.
    let _ = std::fs::remove_file(path);
}
