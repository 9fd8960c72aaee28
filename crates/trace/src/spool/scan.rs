//! Frames of a file, found one after the other. The file may be damaged, or written meanwhile.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use super::frame::{Budget, HEADER_BYTES, Header, MAGIC, Span, each_run, unpack};
use crate::sparse;

/// Largest number of problems of a file, after which the rest is left out.
const PROBLEMS_MAX: usize = 1000;
/// Number of times places without a sound frame are read again, a millisecond apart. A write may
/// sleep for 200 ms while the kernel throttles dirty pages (`MAX_PAUSE` of mm/page-writeback.c).
const LOOKS_MAX: u32 = 250;
/// Age of the last write after which a file is no longer being written.
const FRESH: Duration = Duration::from_secs(1);
/// Number of bytes that are read at once where no frame is.
const WINDOW: usize = 64 << 10;

/// Finds the frames in a part of a file that belong to a trace: up to the file's end, as it was.
/// Calls `run` with the chunk, first number and length of each of their runs. Adds the damages
/// found to `problems`, up to a limit. Reads every byte once, also of the one frame that was being
/// written at the end of the part. Frames that begin behind it are newer than the scan. Zeros are
/// no damage: there the oldest frames were.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn scan(
    file: &File,
    area: Range<u64>,
    trace: u64,
    budget: &mut Budget,
    problems: &mut Vec<String>,
    mut run: impl FnMut(u64, u64, u64),
) -> io::Result<Vec<Span>> {
    let (mut at, mut length) = (area.start, area.end);
    let mut found = Vec::new();
    let (mut foreign, mut dense, mut looks) = (0_u64, 0_u64, 0);
    let said = problems.len();
    while at < area.end {
        if problems.len() >= said + PROBLEMS_MAX {
            problems.push(format!("from byte {at} on it is left out"));
            break;
        }
        let mut bytes = [0; HEADER_BYTES];
        let count =
            usize::try_from(length - at).map_or(HEADER_BYTES, |left| left.min(HEADER_BYTES));
        let bytes = bytes.get_mut(..count).unwrap_or_default();
        file.read_exact_at(bytes, at)?;
        // A frame may begin within these bytes, but not with a zero.
        if bytes.first() == Some(&0) {
            at = after_zeros(file, at, length)?;
            continue;
        }
        let span = Header::parse(bytes).map(|header| Span { offset: at, header });
        let span = span.filter(|span| span.end() <= length);
        if let Some(span) = span.filter(|span| span.header.trace != trace) {
            // Its trace is known before its bytes are read.
            foreign += 1;
            at = span.end();
            continue;
        }
        let packed = span.and_then(|span| span.packed(file));
        if packed.is_none() && looks < LOOKS_MAX && is_fresh(file)? {
            // A running process may just be writing this frame.
            looks += 1;
            thread::sleep(Duration::from_millis(1));
            length = length.max(file.metadata()?.len());
            continue;
        }
        match (span, packed) {
            // The header is sound and gives the offset of the next frame. So nothing is read twice,
            // whatever the frame holds.
            (Some(span), packed) => {
                at = span.end();
                budget.add(at - span.offset);
                if !budget.take(span.header.events) {
                    dense += 1;
                    continue;
                }
                let runs = packed.as_ref().map(|packed| {
                    let runs = packed.get(..span.header.runs.1 as usize);
                    runs.and_then(|runs| unpack(runs, span.header.runs.0))
                });
                let events = span.header.events;
                match runs {
                    None => problems.push(damaged(span.offset, at)),
                    Some(Some(runs)) if each_run(&runs, events, &mut run) => found.push(span),
                    Some(_) => problems.push(format!(
                        "the frame at byte {} makes no sense: left out",
                        span.offset
                    )),
                }
            }
            (None, _) => match next_magic(file, at + 1, length)? {
                Some(next) => {
                    problems.push(damaged(at, next));
                    at = next;
                }
                None => {
                    problems.push(format!(
                        "it ends within the frame at byte {at}, of {length} bytes"
                    ));
                    break;
                }
            },
        }
    }
    if dense > 0 {
        problems.push(format!(
            "{dense} frames are left out: they claim more events than their bytes can have"
        ));
    }
    if foreign > 0 {
        problems.push(format!("{foreign} frames belong to another trace"));
    }
    Ok(found)
}

fn damaged(from: u64, to: u64) -> String {
    format!("bytes {from} to {to} are damaged: the events in them are left out")
}

/// True if a file was just written.
fn is_fresh(file: &File) -> io::Result<bool> {
    let modified = file.metadata()?.modified()?;
    Ok(modified.elapsed().is_ok_and(|age| age <= FRESH))
}

/// Returns the offset of the first byte other than zero, or the length.
fn after_zeros(file: &File, mut from: u64, length: u64) -> io::Result<u64> {
    let mut bytes = vec![0; WINDOW];
    while from < length {
        match sparse::data(file, from) {
            Some(data) if data < length => from = data,
            _ => break,
        }
        let window = window(&mut bytes, from, length);
        file.read_exact_at(window, from)?;
        if let Some(at) = window.iter().position(|byte| *byte != 0) {
            return Ok(from + at as u64);
        }
        from += window.len() as u64;
    }
    Ok(length)
}

/// Returns the offset where the next frame seems to begin.
fn next_magic(file: &File, mut from: u64, length: u64) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; WINDOW];
    while length.saturating_sub(from) >= MAGIC.len() as u64 {
        let window = window(&mut bytes, from, length);
        file.read_exact_at(window, from)?;
        if let Some(at) = window.windows(MAGIC.len()).position(|here| here == MAGIC) {
            return Ok(Some(from + at as u64));
        }
        from += (window.len() - (MAGIC.len() - 1)) as u64;
    }
    Ok(None)
}

/// Returns room for the bytes from an offset on, as far as there are any.
fn window(bytes: &mut [u8], from: u64, length: u64) -> &mut [u8] {
    let count = usize::try_from(length.saturating_sub(from)).unwrap_or(usize::MAX);
    let count = count.min(bytes.len());
    bytes.get_mut(..count).unwrap_or_default()
}
