//! Area of the frames: behind the mapped part of the trace, of bounded size.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use gpushim_descriptors::Identity;

use crate::writer::Writer;

/// Limits of the space that a spool takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Largest number of bytes behind the mapped part; beyond it the oldest frames make room.
    /// `None`: no limit.
    pub max_bytes: Option<u64>,
    /// Bytes that stay free on the disk.
    pub floor: u64,
}

/// Area being written. Within a limit frames go round in it, as in a ring; without one they are
/// appended to the file.
///
/// No descriptor is held between two frames. The program may close every descriptor unknown to it,
/// and get the same number for a file of its own. So the trace is opened by its path for each
/// frame. It is written only if it is still the file that was created.
#[derive(Debug)]
pub struct Area {
    trace: PathBuf,
    identity: Identity,
    limits: SpoolLimits,
    /// Offset of the area: the bytes of the mapped part.
    begin: u64,
    /// End of the newest frame, from the beginning of the area.
    end: u64,
    /// Frames of a limited spool, oldest first: their places in the area, and their bytes.
    frames: VecDeque<(u64, u64)>,
    /// Bytes that frames take; less than `end` after some were cleared.
    bytes: u64,
}

impl Area {
    /// Returns the area of a trace, without any frame.
    pub fn new(writer: &Writer, limits: SpoolLimits) -> Area {
        let (identity, begin) = writer.file();
        Area {
            trace: writer.path().to_path_buf(),
            identity,
            limits,
            begin,
            end: 0,
            frames: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Returns the bytes of all frames.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a frame behind the newest one. After an error no part of it is left in the file.
    ///
    /// # Errors
    /// The obstacle, which completes "the spool stops: …"; [`io::ErrorKind::UnexpectedEof`] if
    /// another program truncated the trace.
    pub fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        let bytes = frame.len() as u64;
        let file = self.identity.open(&self.trace).map_err(|error| {
            io::Error::other(format!(
                "{} cannot be written any more: {error}",
                self.trace.display()
            ))
        })?;
        let length = file.metadata()?.len();
        let Some(used) = length.checked_sub(self.begin) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let place = match self.limits.max_bytes {
            // After a truncation the next frame follows the remaining bytes.
            None => used,
            Some(max) if bytes > max => {
                return Err(io::Error::other(format!(
                    "a frame of {bytes} bytes does not fit into {max} bytes"
                )));
            }
            Some(max) if self.end + bytes > max => 0,
            Some(_) => self.end,
        };
        let at = self.begin + place;
        if free_bytes(&file)? < self.limits.floor.saturating_add(bytes) {
            return Err(io::Error::other(format!(
                "the disk has less than the {} bytes free that are to be left",
                self.limits.floor
            )));
        }
        // Beyond RLIMIT_FSIZE the kernel would also send SIGXFSZ, which ends the process.
        if at.saturating_add(bytes) > crate::writer::file_size_limit() {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        self.make_room(&file, place, bytes)?;
        if let Err(error) = file.write_all_at(frame, at) {
            // If this fails too, the reader finds the frame torn.
            let _ = clear(&file, at, bytes).and_then(|()| file.set_len(length));
            return Err(error);
        }
        self.end = place + bytes;
        self.bytes += bytes;
        if self.limits.max_bytes.is_some() {
            self.frames.push_back((place, bytes));
        }
        Ok(())
    }

    /// Clears the frames that a new one replaces, so that no part of them is left. The next frame's
    /// place is the end of the newest one, or 0 if it begins a new round.
    fn make_room(&mut self, file: &File, place: u64, bytes: u64) -> io::Result<()> {
        let (end, begins) = (self.end, place < self.end);
        let is_replaced = |(at, length): (u64, u64)| {
            // The last ones of the round before are older than those at the beginning.
            begins && at >= end || at < place + bytes && place < at + length
        };
        while let Some(oldest) = self.frames.front().copied()
            && is_replaced(oldest)
        {
            clear(file, self.begin + oldest.0, oldest.1)?;
            self.frames.pop_front();
            self.bytes -= oldest.1;
        }
        Ok(())
    }
}

/// Makes bytes within the file zero, and gives their space back where the file system can.
fn clear(file: &File, at: u64, bytes: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let (Ok(from), Ok(length)) = (at.try_into(), bytes.try_into()) else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    // SAFETY: the descriptor is open while `file` is borrowed.
    if unsafe { libc::fallocate(file.as_raw_fd(), mode, from, length) } == 0 {
        return Ok(());
    }
    let zeros = vec![0; usize::try_from(bytes).unwrap_or(0)];
    file.write_all_at(&zeros, at)
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
