//! Compresses traces in place after the end of their run. The file keeps its name, and is read as
//! before.
//!
//! The compressed file is written beside the trace, compared with it, flushed to the disk and then
//! renamed over it. After any failure, also a kill of the process, one of the two files is
//! complete.

use std::fs::{File, FileTimes, Metadata};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::error::{Context, Result, failed};
use crate::recording::{Recording, is_compressed, most_unpacked};
use crate::top::{is_here, is_in_use, running};
use crate::whole::{Readers, Unfinished, folder_of};
use gpushim_trace::Trace;
use gpushim_trace::regular::open_regular;

/// Bytes on the disk up to which a trace is left as it is: it is read faster so.
const WORTH: u64 = 1 << 20;
/// Bytes that are compressed as one member of the file.
///
/// All pieces of zeros, such as the holes of a trace, share one compressed member.
const PIECE: usize = 1 << 20;
/// Bytes that are compared at once.
const CHUNK: usize = 64 << 10;

/// Compresses traces in place, each as [`in_place`] does. Returns the errors; each completes
/// "failed to …".
pub fn all(traces: &[PathBuf]) -> Vec<String> {
    let done = traces.iter().map(|trace| in_place(trace));
    done.filter_map(|done| Some(done.err()?.to_string()))
        .collect()
}

/// Compresses a trace in place, with its permissions and its time of change.
///
/// Does nothing and returns `false` in these cases:
///
/// - The trace is small, or compressed already.
/// - Compression saves nothing, or makes a file that readers would refuse.
/// - The trace's process may still run.
/// - Another process compresses the trace at the same time, or has replaced it.
///
/// A process is known to have ended only by its number, on the same host and in the same namespace.
/// Traces without these facts, or with those of another machine, are left alone.
///
/// # Errors
/// The cause of the failure; the trace is unchanged.
pub fn in_place(path: &Path) -> Result<bool> {
    let place = || format!("compress {}", path.display());
    let (mut file, meta) = open_regular(path).context(place())?;
    let before = taken(&meta);
    if before <= WORTH || is_compressed(path) || !has_ended(path) || !is_ours_alone(&file) {
        return Ok(false);
    }
    let packed = Unfinished::beside(path).context(place())?;
    let mut out = BufWriter::new(packed.file());
    compress(&mut file, &mut out).context(place())?;
    out.rewind().context(place())?;
    drop(out);
    let filled = same(path, packed.file()).context(place())?;
    let finished = packed.file();
    // A reader refuses files that unpack to an unusual multiple of their size.
    let size = finished.metadata().context(place())?;
    if taken(&size) >= before || filled > most_unpacked(finished) {
        return Ok(false);
    }
    let times = FileTimes::new().set_modified(meta.modified().context(place())?);
    let is_on_disk = finished
        .set_permissions(meta.permissions())
        .and_then(|()| finished.set_times(times))
        .and_then(|()| finished.sync_all());
    is_on_disk.context(place())?;
    let now = std::fs::symlink_metadata(path).context(place())?;
    if (now.dev(), now.ino()) != (meta.dev(), meta.ino()) {
        return Ok(false);
    }
    packed.persist(path, Readers::Owner).context(place())?;
    // Flush the folder, so that the name is on the disk. If this fails, a crash may restore the old
    // file, which is complete, too.
    let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    Ok(true)
}

fn taken(meta: &Metadata) -> u64 {
    meta.blocks().saturating_mul(512)
}

/// True if the process that wrote a trace is known to have ended, and no other process maps the
/// trace.
fn has_ended(path: &Path) -> bool {
    let Ok(trace) = Trace::open_ring(path) else {
        return false;
    };
    let is_mapped = || {
        path.canonicalize()
            .is_ok_and(|path| running().contains(&path))
    };
    is_here(&trace.process()) && !is_in_use(&trace) && !is_mapped()
}

/// True if no other process compresses this file. The lock ends with the descriptor.
fn is_ours_alone(file: &File) -> bool {
    // SAFETY: a system call with plain numbers, on a descriptor that is open.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    // File systems without locks: the rename is atomic in any case.
    locked == 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}

/// Writes a file compressed by gzip.
///
/// # Errors
/// Those of reading and of writing.
pub fn compress(file: &mut File, out: &mut dyn Write) -> Result<()> {
    let member = |piece: &[u8]| -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(piece)?;
        encoder.finish()
    };
    let mut zeros = None;
    let mut piece = Vec::with_capacity(PIECE);
    loop {
        piece.clear();
        file.take(PIECE as u64).read_to_end(&mut piece)?;
        if piece.len() == PIECE && piece.iter().all(|byte| *byte == 0) {
            if zeros.is_none() {
                zeros = Some(member(&piece)?);
            }
            out.write_all(zeros.as_deref().unwrap_or_default())?;
        } else if !piece.is_empty() {
            out.write_all(&member(&piece)?)?;
        }
        if piece.len() < PIECE {
            return Ok(());
        }
    }
}

/// Checks that compressed data equals the file. Returns the bytes in chunks that are not all zeros.
///
/// # Errors
/// Errors of reading, and an error if the file has changed.
pub fn same(path: &Path, packed: impl Read) -> Result<u64> {
    let mut plain = File::open(path)?;
    let mut unpacked = MultiGzDecoder::new(BufReader::new(packed));
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut filled = 0_u64;
    loop {
        let read = plain.read(&mut left)?;
        let expected = left.get(..read).unwrap_or_default();
        let got = right.get_mut(..read).unwrap_or_default();
        if read == 0 {
            // One byte more than the file has is one too many.
            return match unpacked.read(&mut right)? {
                0 => Ok(filled),
                _ => Err(failed!("it changed meanwhile; try again")),
            };
        }
        unpacked.read_exact(got)?;
        if got != expected {
            return Err(failed!("it changed meanwhile; try again"));
        }
        if expected.iter().any(|byte| *byte != 0) {
            filled = filled.saturating_add(read as u64);
        }
    }
}
