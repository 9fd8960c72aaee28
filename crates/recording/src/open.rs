//! The format of a file, by its first bytes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Recording;
use super::beside::trace_of;
use super::csv::{Dialect, LineLog};
use super::packed::{Form, Packed};
use super::pickle::Pickle;
use super::requests::REQUESTS;
use super::rmm::RMM;
use super::snapshot::Snapshot;
use super::started::Started;
use super::unpacked::Opened;
use super::{unpacked, viewer_page};
use crate::error::{Result, failed};
use gpushim_trace::Trace;
use gpushim_trace::layout::MAGIC;
use gpushim_trace::regular::open_regular;

/// Bytes of the beginning that are examined.
const HEAD: usize = 4096;
/// Bytes beyond which a snapshot is not loaded into memory.
const SNAPSHOT_MAX: u64 = 2 << 30;

/// Opens a recording by its content; `-` is standard input. Each of these may be compressed by
/// gzip:
///
/// - A trace of the shim, also packed.
/// - A PyTorch memory snapshot or a page of its viewer.
/// - A log of RMM, or a list of requests.
///
/// # Errors
/// The file cannot be read, or is of no known kind; completes "failed to …".
pub fn open(path: &Path) -> Result<Box<dyn Recording>> {
    if path == Path::new("-") {
        return unpacked::standard_input(open_file);
    }
    open_file(path)
}

/// Opens a recording like [`open`], but an uncompressed trace without its spool, whose gigabytes
/// are not read. It is for data outside the events, or if the newest events are enough.
///
/// # Errors
/// The errors of [`open`].
pub fn open_ring(path: &Path) -> Result<Box<dyn Recording>> {
    match other_format(path)? {
        Some(recording) => Ok(recording),
        None => Ok(Box::new(Trace::open_ring(path)?)),
    }
}

fn open_file(path: &Path) -> Result<Box<dyn Recording>> {
    let recording = match other_format(path)? {
        Some(recording) => recording,
        None => Box::new(trace(path)?),
    };
    let coverage = recording.coverage();
    if let (true, 0, Some(damage)) = (
        coverage.damaged,
        coverage.readable,
        recording.problems().first(),
    ) {
        return Err(failed!(
            "read the trace {}: none of its events can be read: {damage}",
            path.display()
        ));
    }
    Ok(Box::new(Started::new(recording)))
}

/// Opens a trace. The error of a file beside a trace names the trace.
fn trace(path: &Path) -> Result<Trace> {
    let opened = Trace::open(path);
    match (opened, trace_of(path).filter(|_| path.is_file())) {
        (Err(_), Some(trace)) => Err(failed!(
            "read the trace {}: it belongs to the trace {}; name that file",
            path.display(),
            trace.display()
        )),
        (opened, _) => Ok(opened?),
    }
}

/// Opens a recording in a format other than the trace; `None` for files that [`Trace::open`] reads
/// or explains.
fn other_format(path: &Path) -> Result<Option<Box<dyn Recording>>> {
    let Ok((file, _)) = open_regular(path) else {
        return Ok(None);
    };
    let (head, form) = head(&file);
    if form != Form::Plain && head.starts_with(&MAGIC) {
        return Ok(Some(Box::new(Opened::unpacked(path, &file, form)?)));
    }
    let is_gzip = form == Form::Gzip;
    if Pickle::is_one(&head) || viewer_page::is_html(&head) {
        return Ok(Some(Box::new(snapshot(path, file, form)?)));
    }
    if let Some(dialect) = dialect(&head) {
        return Ok(Some(Box::new(LineLog::new(path, file, is_gzip, dialect))));
    }
    if form != Form::Plain {
        return Err(failed!(
            "read {}: it unpacks to something that is not a trace, a PyTorch memory snapshot, an RMM log or a list of \
             requests",
            path.display()
        ));
    }
    Ok(None)
}

/// Reads the first bytes of a file, unpacked; also returns its form.
fn head(file: &File) -> (Vec<u8>, Form) {
    let mut head = vec![0; HEAD];
    let read = file.read_at(&mut head, 0).unwrap_or(0);
    head.truncate(read);
    let form = Form::of(&head);
    if form != Form::Plain {
        head.clear();
        // Later damage is not reported here; the data before it is enough.
        let _ = form
            .content(file)
            .and_then(|content| content.take(HEAD as u64).read_to_end(&mut head));
    }
    (head, form)
}

/// Returns true if a file is packed, or compressed by gzip.
pub fn is_compressed(path: &Path) -> bool {
    form_of(path) != Form::Plain
}

/// Returns true if a file is packed.
pub fn is_packed(path: &Path) -> bool {
    form_of(path) == Form::Zstd
}

fn form_of(path: &Path) -> Form {
    let mut begin = [0; 4];
    let read = open_regular(path).and_then(|(file, _)| file.read_exact_at(&mut begin, 0));
    read.map_or(Form::Plain, |()| Form::of(&begin))
}

/// Opens a trace of the shim, which may be packed, or compressed by gzip.
///
/// # Errors
/// The file cannot be read, or is no trace; completes "failed to …".
pub fn open_trace(path: &Path) -> Result<Opened<Trace>> {
    if !is_compressed(path) {
        return Opened::in_place(path);
    }
    let place = path.display();
    let (file, _) =
        open_regular(path).map_err(|error| failed!("read the trace {place}: {error}"))?;
    let (head, form) = head(&file);
    if !head.starts_with(&MAGIC) {
        return Err(failed!(
            "read the trace {place}: what is compressed there is no trace of gpushim"
        ));
    }
    Opened::unpacked(path, &file, form)
}

/// Finds the sort of log whose header is the first line.
fn dialect(head: &[u8]) -> Option<&'static Dialect> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    [&RMM, &REQUESTS]
        .into_iter()
        .find(|dialect| dialect.is_header(line))
}

fn snapshot(path: &Path, file: File, form: Form) -> Result<Snapshot> {
    let place = path.display();
    let content = form.content(&file).and_then(|content| {
        let input: Box<dyn Read + '_> = match form {
            Form::Plain => content,
            _ => Box::new(Packed::new(content, file.metadata()?.len())),
        };
        Ok(input)
    });
    let input = content.map_err(|error| failed!("read {place}: {error}"))?;
    let mut bytes = Vec::new();
    let read = input.take(SNAPSHOT_MAX).read_to_end(&mut bytes);
    if bytes.len() as u64 >= SNAPSHOT_MAX {
        return Err(failed!(
            "read {place}: it is a snapshot of 2 GiB or more, which is too large to read; record fewer entries \
             (max_entries)"
        ));
    }
    let damaged = read.err();
    let read = bytes.len();
    let mut more = 0;
    if viewer_page::is_html(&bytes) {
        (bytes, more) =
            viewer_page::snapshot(&bytes).map_err(|why| failed!("read {place}: {why}"))?;
    }
    let mut snapshot = Snapshot::of(path, &bytes).map_err(|why| failed!("read {place}: {why}"))?;
    if more > 0 {
        snapshot = snapshot.with_problem(format!(
            "the page has {more} more snapshots, which are not read"
        ));
    }
    Ok(match damaged {
        Some(error) => snapshot.with_damage(format!(
            "it cannot be read beyond byte {read} of what is compressed: {error}"
        )),
        None => snapshot,
    })
}
