//! Files of a spool: segments of bounded size, the oldest deleted when there is no more room.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gpushim_descriptors::Identity;

use super::frame::MAGIC;
use super::{segment_path, segments};

/// Limits of the space that a spool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Largest number of bytes of all segments together; beyond it the oldest segment is deleted.
    /// `None`: no limit, and a single segment.
    pub max_bytes: Option<u64>,
    /// Bytes that stay free on the disk.
    pub floor: u64,
}

/// Files being written. A limited spool has segments of a quarter of its limit.
///
/// No descriptor is held between two frames. The program may close every descriptor unknown to it,
/// and get the same number for a file of its own. So a segment is opened by its path for each
/// frame. It is written only if it is still the file that was created.
#[derive(Debug)]
pub struct Segments {
    trace: PathBuf,
    limits: SpoolLimits,
    current: Segment,
    /// Segments before the current one.
    older: VecDeque<Segment>,
}

/// Segment file that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    number: u64,
    identity: Identity,
    bytes: u64,
}

impl Segments {
    /// Creates the first segment. Deletes segments left by an earlier trace of this name: without
    /// that trace they cannot be read. Other files are left alone.
    pub fn create(trace: &Path, limits: SpoolLimits) -> io::Result<Segments> {
        for (_, stale) in segments(trace) {
            if is_spool(&stale) {
                std::fs::remove_file(&stale)?;
            }
        }
        Ok(Segments {
            trace: trace.to_path_buf(),
            limits,
            current: create(trace, 0)?,
            older: VecDeque::new(),
        })
    }

    /// Appends a frame. After an error no part of it is left in the file.
    ///
    /// # Errors
    /// The obstacle, which completes "the spool stops: …".
    pub fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        let bytes = frame.len() as u64;
        if let Some(max) = self.limits.max_bytes {
            if bytes > max {
                return Err(io::Error::other(format!(
                    "a frame of {bytes} bytes does not fit into {max} bytes"
                )));
            }
            if self.current.bytes > 0 && self.current.bytes + bytes > max / 4 {
                self.rotate()?;
            }
            while self.total() + bytes > max
                && let Some(oldest) = self.older.pop_front()
            {
                self.remove(oldest)?;
            }
        }
        self.write(frame)
    }

    /// Returns the bytes of all segments.
    pub fn total(&self) -> u64 {
        self.current.bytes + self.older.iter().map(|older| older.bytes).sum::<u64>()
    }

    fn rotate(&mut self) -> io::Result<()> {
        let next = create(&self.trace, self.current.number + 1)?;
        self.older
            .push_back(std::mem::replace(&mut self.current, next));
        Ok(())
    }

    /// Deletes a segment, unless another file lies in its place.
    fn remove(&self, segment: Segment) -> io::Result<()> {
        let path = segment_path(&self.trace, segment.number);
        match path.symlink_metadata() {
            Ok(meta) if segment.identity.is(&meta) => std::fs::remove_file(path),
            // The segment was moved or deleted by another program.
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let bytes = frame.len() as u64;
        let path = segment_path(&self.trace, self.current.number);
        let file = self.current.identity.open(&path).map_err(|error| {
            io::Error::other(format!(
                "{} cannot be written any more: {error}",
                path.display()
            ))
        })?;
        if free_bytes(&file)? < self.limits.floor.saturating_add(bytes) {
            return Err(io::Error::other(format!(
                "the disk has less than the {} bytes free that are to be left",
                self.limits.floor
            )));
        }
        // Frames are found at any offset: after a truncation the next one follows the remaining
        // bytes.
        let at = file.metadata()?.len();
        // Beyond RLIMIT_FSIZE the kernel would also send SIGXFSZ, which ends the process.
        if at.saturating_add(bytes) > crate::writer::file_size_limit() {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        if let Err(error) = file.write_all_at(frame, at) {
            // If this fails too, the reader finds the frame torn.
            let _ = file.set_len(at);
            return Err(error);
        }
        self.current.bytes = at + bytes;
        Ok(())
    }
}

/// Creates a segment and closes its descriptor.
fn create(trace: &Path, number: u64) -> io::Result<Segment> {
    let file = gpushim_descriptors::create(&segment_path(trace, number))?;
    Ok(Segment {
        number,
        identity: Identity::of(&file.metadata()?),
        bytes: 0,
    })
}

/// True if a file is a segment: empty, or begins like a frame.
fn is_spool(path: &Path) -> bool {
    let is_file = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    let mut first = [0; MAGIC.len()];
    is_file
        && File::open(path).is_ok_and(|file| {
            file.metadata().is_ok_and(|meta| meta.len() == 0)
                || (file.read_exact_at(&mut first, 0).is_ok() && first == MAGIC)
        })
}

/// Returns the bytes that the disk of a file has free for this user.
fn free_bytes(file: &File) -> io::Result<u64> {
    // SAFETY: statvfs is plain numbers, for which zeros are valid.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open while `file` is borrowed, the pointer is to a local struct.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
