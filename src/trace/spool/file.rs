//! The files of a spool: segments of bounded size, the oldest deleted when there is no more room.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::frame::MAGIC;
use super::{segment_path, segments};

/// What a spool may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Bytes of all segments together; beyond it the oldest segment is deleted. `None`: no limit, and a
    /// single segment.
    pub max_bytes: Option<u64>,
    /// Bytes that are left free on the disk.
    pub floor: u64,
}

/// The files being written. A limited spool has segments of a quarter of its limit.
#[derive(Debug)]
pub struct Segments {
    trace: PathBuf,
    limits: SpoolLimits,
    file: File,
    /// Number and bytes of the segment being written.
    number: u64,
    at: u64,
    /// Those before it.
    older: VecDeque<(u64, u64)>,
}

impl Segments {
    /// Creates the first segment. What lies there of a trace that is gone, which without it cannot be
    /// read, is deleted; other files are left alone.
    pub fn create(trace: &Path, limits: SpoolLimits) -> io::Result<Segments> {
        for (_, stale) in segments(trace) {
            if is_spool(&stale) {
                std::fs::remove_file(&stale)?;
            }
        }
        Ok(Segments {
            trace: trace.to_path_buf(),
            limits,
            file: open(trace, 0)?,
            number: 0,
            at: 0,
            older: VecDeque::new(),
        })
    }

    /// Appends a frame. After an error nothing of it is left in the file.
    ///
    /// # Errors
    /// What stands in the way: completes "the spool stops: …".
    pub fn append(&mut self, frame: &[u8]) -> Result<(), String> {
        let bytes = frame.len() as u64;
        if let Some(max) = self.limits.max_bytes {
            if bytes > max {
                return Err(format!(
                    "a frame of {bytes} bytes does not fit into {max} bytes"
                ));
            }
            if self.at > 0 && self.at + bytes > max / 4 {
                self.rotate().map_err(|error| error.to_string())?;
            }
            while self.total() + bytes > max
                && let Some((number, _)) = self.older.pop_front()
            {
                let path = segment_path(&self.trace, number);
                std::fs::remove_file(path).map_err(|error| error.to_string())?;
            }
        }
        self.write(frame).map_err(|error| match error {
            Some(error) => error.to_string(),
            None => format!(
                "the disk has less than the {} bytes free that are to be left",
                self.limits.floor
            ),
        })
    }

    /// Bytes of all segments.
    pub fn total(&self) -> u64 {
        self.at + self.older.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = open(&self.trace, self.number + 1)?;
        self.older.push_back((self.number, self.at));
        self.number += 1;
        self.at = 0;
        Ok(())
    }

    /// `Err(None)`: the disk is full enough.
    fn write(&mut self, frame: &[u8]) -> Result<(), Option<io::Error>> {
        let bytes = frame.len() as u64;
        if free_bytes(&self.file).map_err(Some)? < self.limits.floor.saturating_add(bytes) {
            return Err(None);
        }
        // Beyond RLIMIT_FSIZE the kernel would also send SIGXFSZ, which kills.
        if self.at + bytes > crate::trace::writer::file_size_limit() {
            return Err(Some(io::Error::from_raw_os_error(libc::EFBIG)));
        }
        if let Err(error) = self.file.write_all_at(frame, self.at) {
            // If that fails too, the reader finds the frame torn.
            let _ = self.file.set_len(self.at);
            return Err(Some(error));
        }
        self.at += bytes;
        Ok(())
    }
}

fn open(trace: &Path, number: u64) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(segment_path(trace, number))
}

/// Whether a file is one of ours: empty, or begins as a frame does.
fn is_spool(path: &Path) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let mut first = [0; MAGIC.len()];
    is_file
        && File::open(path).is_ok_and(|file| {
            file.metadata().is_ok_and(|meta| meta.len() == 0)
                || (file.read_exact_at(&mut first, 0).is_ok() && first == MAGIC)
        })
}

/// Bytes that the disk of a file has free for this user.
fn free_bytes(file: &File) -> io::Result<u64> {
    // SAFETY: statvfs is plain numbers, for which zeros are valid.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `file` is borrowed, the pointer is to a local struct.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
