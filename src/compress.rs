//! Packs traces in place after the end of their run: the file keeps its name, and is read as before.
//!
//! A packed trace is a sequence of zstd frames, one for each piece of the trace, and then the data
//! attached to it. The packed file is written beside the trace, compared with it, flushed to the
//! disk and then renamed over it. After any failure, also a kill of the process, one of the two
//! files is complete.

use std::fs::{File, FileTimes};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::error::{Context, Result, failed};
use crate::recording::{Recording, is_compressed, most_unpacked};
use crate::top::{is_here, is_in_use, running};
use crate::whole::{Readers, Unfinished, folder_of};
use gpushim_trace::attached::{self, Attached};
use gpushim_trace::regular::open_regular;
use gpushim_trace::{Trace, sparse};

/// Bytes that are compressed as one frame.
///
/// All pieces of zeros, such as the holes of a trace, share one compressed frame.
const PIECE: usize = 1 << 20;
/// Bytes of a chunk of which readers look whether it is all zeros.
const CHUNK: usize = 64 << 10;
/// Level of zstd: higher ones take longer at the end of a run and save little.
const LEVEL: i32 = 3;
/// Bytes of a spool beyond which `gpushim run` leaves a trace as it was written. The events are
/// compressed already, and a copy of them takes longer than it saves.
const SPOOL_MOST: u64 = 1 << 30;

/// Data to attach to a trace.
pub type Attachment = (Attached, Vec<u8>);

/// Packs the trace of a process that ended on this machine, and attaches data to it.
///
/// Without `packs` and where packing saves nothing, the data is attached to the trace as it is. A
/// trace is left alone if its process may still run, or if it is of another machine: a process is
/// known to have ended only by its number, on the same host and in the same namespace.
///
/// # Errors
/// The cause of the failure; the trace is unchanged.
pub fn finish(path: &Path, packs: bool, attachments: &[Attachment]) -> Result<()> {
    let Some(spool) = ended(path) else {
        return Ok(());
    };
    if packs && spool <= SPOOL_MOST && in_place(path, attachments)? {
        return Ok(());
    }
    attach(path, attachments)
}

/// Attaches data to a trace as it is, unless another process packs it at this moment, such as the
/// `gpushim run` of another rank: that one attaches the same.
///
/// # Errors
/// The trace cannot be written.
pub fn attach(path: &Path, attachments: &[Attachment]) -> Result<()> {
    for (kind, content) in attachments {
        match attached::attach(path, *kind, content) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => return Ok(()),
            attached => attached.context(format!("attach data to {}", path.display()))?,
        }
    }
    Ok(())
}

/// Packs a trace in place, with its permissions and its time of change, and attaches data to it.
///
/// Does nothing and returns `false` in these cases:
///
/// - Packing saves nothing, or makes a file that readers would refuse.
/// - Another process packs the trace at the same time, or has replaced it.
///
/// # Errors
/// The cause of the failure; the trace is unchanged.
pub fn in_place(path: &Path, attachments: &[Attachment]) -> Result<bool> {
    let place = || format!("pack {}", path.display());
    let (file, meta) = open_regular(path).context(place())?;
    if is_compressed(path) || !is_ours_alone(&file) {
        return Ok(false);
    }
    let end = attached::begin(&file, meta.len());
    let packed = Unfinished::beside(path).context(place())?;
    let mut out = BufWriter::new(packed.file());
    compress(&file, end, &mut out).context(place())?;
    out.rewind().context(place())?;
    let filled = same(&file, end, packed.file()).context(place())?;
    // A reader refuses files that unpack to an unusual multiple of their size.
    let size = packed.file().metadata().context(place())?.len();
    if size >= end || filled > most_unpacked(packed.file()) {
        return Ok(false);
    }
    for kind in [Attached::Summary, Attached::Symbols] {
        let new = attachments.iter().find(|(of, _)| *of == kind);
        let old = || attached::read(&file, kind).ok().flatten();
        if let Some(content) = new.map(|(_, content)| content.clone()).or_else(old) {
            let frame = attached::encode(kind, &content).context(place())?;
            out.write_all(&frame).context(place())?;
        }
    }
    out.flush().context(place())?;
    drop(out);
    let times = FileTimes::new().set_modified(meta.modified().context(place())?);
    let finished = packed.file();
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

/// The bytes of a trace's spool, if the process that wrote it is known to have ended, and no other
/// process maps it.
fn ended(path: &Path) -> Option<u64> {
    let trace = Trace::open_ring(path).ok()?;
    let is_mapped = || {
        path.canonicalize()
            .is_ok_and(|path| running().contains(&path))
    };
    let bytes = std::fs::metadata(path).ok()?.len();
    let has_ended = is_here(&trace.process()) && !is_in_use(&trace) && !is_mapped();
    has_ended.then(|| bytes.saturating_sub(trace.header().file_bytes))
}

/// True if no other process packs this file. The lock ends with the descriptor.
fn is_ours_alone(file: &File) -> bool {
    // SAFETY: a system call with plain numbers, on a descriptor that is open.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    // File systems without locks: the rename is atomic in any case.
    locked == 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}

/// Writes the first `end` bytes of a file as frames of zstd.
fn compress(file: &File, end: u64, out: &mut dyn Write) -> Result<()> {
    let mut packer = zstd::bulk::Compressor::new(LEVEL)?;
    packer.include_checksum(true)?;
    let mut buffer = vec![0; PIECE];
    let zeros = packer.compress(&buffer)?;
    each_piece(file, end, &mut buffer, |piece| match piece {
        Some(piece) => Ok(out.write_all(&packer.compress(piece)?)?),
        None => Ok(out.write_all(&zeros)?),
    })
}

/// Calls `work` with each piece of a file; `None` for a whole one of zeros.
fn each_piece(
    file: &File,
    end: u64,
    buffer: &mut [u8],
    mut work: impl FnMut(Option<&[u8]>) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    while at < end {
        let next = at.saturating_add(PIECE as u64);
        if next <= end && sparse::data(file, at).is_none_or(|data| data >= next) {
            work(None)?;
        } else {
            let count = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            let piece = buffer.get_mut(..count).unwrap_or_default();
            file.read_exact_at(piece, at)?;
            let is_zeros = count == PIECE && piece.iter().all(|byte| *byte == 0);
            work(Some(&*piece).filter(|_| !is_zeros))?;
        }
        at = next;
    }
    Ok(())
}

/// Checks that packed data equals the first `end` bytes of a file. Returns the bytes in chunks that
/// are not all zeros, as readers count them.
fn same(file: &File, end: u64, packed: &File) -> Result<u64> {
    let changed = || failed!("it changed meanwhile; try again");
    let mut unpacked = zstd::Decoder::with_buffer(BufReader::new(packed))?;
    let (mut buffer, mut got) = (vec![0; PIECE], vec![0; PIECE]);
    let mut filled = 0_u64;
    each_piece(file, end, &mut buffer, |piece| {
        let count = piece.map_or(PIECE, <[u8]>::len);
        let got = got.get_mut(..count).unwrap_or_default();
        unpacked.read_exact(got)?;
        let is_same = match piece {
            Some(piece) => piece == got,
            None => got.iter().all(|byte| *byte == 0),
        };
        let chunks = piece.unwrap_or_default().chunks(CHUNK);
        let chunks = chunks.filter(|chunk| chunk.iter().any(|byte| *byte != 0));
        filled += chunks.map(|chunk| chunk.len() as u64).sum::<u64>();
        is_same.then_some(()).ok_or_else(changed)
    })?;
    // One byte more than the file has is one too many.
    match unpacked.read(&mut got)? {
        0 => Ok(filled),
        _ => Err(changed()),
    }
}
