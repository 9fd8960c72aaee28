//! The header, the parts directory and the field table, as far as they are plausible.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::bytes::Bytes;
use crate::Error;
use crate::clock::{Calibration, ClockSource, Pair};
use crate::layout::{
    self, FIELDS, FieldId, MAGIC, PartKind, field, get_u16, get_u32, get_u64, header, part,
};

/// Decoded header of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the format, incompatible part.
    pub major: u32,
    /// Version of the format, compatible part.
    pub minor: u32,
    /// Wall clock at the start, ns since 1970.
    pub wall_ns: u64,
    /// Clock that gave the ticks; `None` for one unknown to this version.
    pub clock_source: Option<ClockSource>,
    /// Conversion of ticks to ns.
    pub clock: Calibration,
    /// Bytes of the mapped part. What is behind it is the spool.
    pub file_bytes: u64,
}

/// Place of a part. Its bounds were checked against the possible offsets, not against the file's
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the part in the file.
    pub offset: u64,
    /// Length of the part in bytes.
    pub length: u64,
    /// Bytes of one entry, never 0.
    pub stride: u64,
}

/// The known parts, and the places of the fields of a record.
#[derive(Debug)]
pub struct Parts {
    known: Vec<(u32, Part)>,
    /// Offset and width by [`layout::FieldId`]; width 0 if the file has no such field.
    pub fields: [(u16, u16); FIELDS.len()],
}

impl Parts {
    /// Returns the first part of a kind.
    pub fn get(&self, kind: PartKind) -> Option<Part> {
        self.known
            .iter()
            .find(|(number, _)| *number == kind as u32)
            .map(|(_, part)| *part)
    }
}

/// Largest header, parts directory or field table that a reader accepts.
const SANE: u32 = 1 << 16;

/// Largest number of problems of a directory, after which its other entries are left out.
const DIRECTORY_PROBLEMS: usize = 16;

/// Returns the bytes of the mapped part of a file of this length; all of them if its header is
/// damaged, so that no part is left out.
pub fn mapped(file: &File, length: u64) -> u64 {
    let mut page = [0; layout::HEADER_BYTES];
    let read = file.read_exact_at(&mut page, 0);
    let is_sound =
        read.is_ok() && get_u64(&page, header::CHECKSUM) == Some(layout::checksum(&page));
    let bytes = get_u64(&page, header::FILE_BYTES).filter(|_| is_sound);
    bytes.map_or(length, |bytes| bytes.min(length))
}

/// Parses the header of the file at a path.
pub fn parse(
    path: &Path,
    bytes: &Bytes,
    problems: &mut Vec<String>,
) -> Result<(Header, Parts), Error> {
    let failed = |why: String| Error::new(super::READ, path, why);
    let first = bytes.to_vec(0, layout::HEADER_BYTES as u64);
    if first.is_empty() {
        return Err(failed("it is empty".to_string()));
    }
    match first.get(..MAGIC.len()) {
        Some(magic) if magic == MAGIC => {}
        Some([0, 0, 0, 0, 0, 0, 0, 0]) => {
            return Err(failed(
                "it was never completely created (its first 8 bytes are zero)".to_string(),
            ));
        }
        _ => {
            return Err(failed(
                "it is not a gpushim trace (its first 8 bytes are not \"gpushim\\0\")".to_string(),
            ));
        }
    }
    let short = || {
        failed(format!(
            "it is cut off in its header: {} bytes of {}",
            bytes.len(),
            layout::HEADER_BYTES
        ))
    };
    let word = |at| get_u32(&first, at).ok_or_else(short);
    let long = |at| get_u64(&first, at).ok_or_else(short);
    let (major, minor) = (word(header::MAJOR)?, word(header::MINOR)?);
    if major != layout::MAJOR {
        return Err(failed(format!(
            "it has format version {major}.{minor}, and this gpushim reads version {}; use the gpushim that wrote it",
            layout::MAJOR
        )));
    }
    if first.len() < layout::HEADER_BYTES {
        return Err(short());
    }
    let size = word(header::BYTES)?.clamp(layout::HEADER_BYTES as u32, SANE);
    let page = bytes.to_vec(0, u64::from(size));
    if long(header::CHECKSUM)? != layout::checksum(&page) {
        problems.push(
            "the header does not match its checksum: some of what follows may be wrong".to_string(),
        );
    }
    let file_bytes = long(header::FILE_BYTES)?;
    if bytes.len() < file_bytes {
        problems.push(format!(
            "the file is cut off: {} bytes of {file_bytes}",
            bytes.len()
        ));
    }
    let source = word(header::CLOCK)?;
    let clock_source = ClockSource::from_number(source);
    if clock_source.is_none() {
        problems.push(format!(
            "the header names clock {source}, which is unknown: times may be wrong"
        ));
    }
    let header = Header {
        major,
        minor,
        wall_ns: long(header::WALL_NS)?,
        clock_source,
        clock: clock(&page, problems).ok_or_else(short)?,
        file_bytes,
    };
    let fields = fields(&page, problems);
    let known = parts(&page, bytes.len(), problems);
    Ok((header, Parts { known, fields }))
}

fn clock(page: &[u8], problems: &mut Vec<String>) -> Option<Calibration> {
    let start = Pair {
        ticks: get_u64(page, header::START_TICKS)?,
        ns: get_u64(page, header::START_NS)?,
    };
    let pair = |index: usize| {
        let at = header::CLOCK_PAIRS + index * 16;
        Some(Calibration {
            start,
            later: Pair {
                ticks: get_u64(page, at)?,
                ns: get_u64(page, at + 8)?,
            },
        })
    };
    let current = (get_u64(page, header::CLOCK_CURRENT)? & 1) as usize;
    let (first, second) = (pair(current)?, pair(current ^ 1)?);
    if first.is_plausible() {
        return Some(first);
    }
    problems.push("the header's clock pair makes no sense: times may be wrong".to_string());
    Some(if second.is_plausible() { second } else { first })
}

fn fields(page: &[u8], problems: &mut Vec<String>) -> [(u16, u16); FIELDS.len()] {
    let mut found = [(0, 0); FIELDS.len()];
    let (Some(offset), Some(count), Some(stride)) = (
        get_u32(page, header::FIELDS_OFFSET),
        get_u32(page, header::FIELDS_COUNT),
        get_u32(page, header::FIELDS_STRIDE),
    ) else {
        return found;
    };
    let entry = |index: u32| {
        let at = u64::from(offset) + u64::from(index) * u64::from(stride);
        let at = usize::try_from(at).ok()?;
        let name = page.get(at..at.checked_add(field::NAME_BYTES)?)?;
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        let width = get_u16(page, at + field::WIDTH)?;
        let place = (get_u16(page, at + field::OFFSET)?, width);
        let id = FIELDS
            .iter()
            .position(|known| known.name.as_bytes() == &name[..end])?;
        matches!(width, 1 | 2 | 4 | 8).then_some((id, place))
    };
    for (id, place) in (0..count.min(SANE / 16)).filter_map(entry) {
        if let Some(slot) = found.get_mut(id) {
            *slot = place;
        }
    }
    let missing: Vec<_> = FIELDS
        .iter()
        .zip(found)
        // Files from before streams of tensors are complete without this field.
        .filter(|(field, (_, width))| *width == 0 && **field != FIELDS[FieldId::Stream as usize])
        .map(|(field, _)| field.name)
        .collect();
    if !missing.is_empty() {
        problems.push(format!(
            "the header's field table lacks {}: read as 0",
            missing.join(", ")
        ));
    }
    found
}

fn parts(page: &[u8], file: u64, problems: &mut Vec<String>) -> Vec<(u32, Part)> {
    let (Some(offset), Some(count), Some(stride)) = (
        get_u32(page, header::PARTS_OFFSET),
        get_u32(page, header::PARTS_COUNT),
        get_u32(page, header::PARTS_STRIDE),
    ) else {
        return Vec::new();
    };
    let mut known = Vec::new();
    let said = problems.len();
    for index in 0..count.min(SANE / 32) {
        if problems.len() >= said + DIRECTORY_PROBLEMS {
            problems.push(format!(
                "the parts directory is left out from entry {index} on"
            ));
            break;
        }
        let at = usize::try_from(u64::from(offset) + u64::from(index) * u64::from(stride))
            .unwrap_or(usize::MAX);
        let number = |field: usize| at.checked_add(field).and_then(|at| get_u64(page, at));
        let (Some(kind), Some(offset), Some(length), Some(stride)) = (
            at.checked_add(part::KIND).and_then(|at| get_u32(page, at)),
            number(part::OFFSET),
            number(part::LENGTH),
            number(part::STRIDE),
        ) else {
            problems.push(format!(
                "the parts directory ends outside of the header, at entry {index}"
            ));
            break;
        };
        let sound = offset.is_multiple_of(8) && stride > 0 && length < 1 << 48 && offset < 1 << 48;
        if !sound {
            problems.push(format!(
                "entry {index} of the parts directory makes no sense: that part is left out"
            ));
            continue;
        }
        if offset >= file && length > 0 {
            problems.push(format!(
                "part {kind} begins at byte {offset}, beyond the end of the file"
            ));
        }
        known.push((
            kind,
            Part {
                offset,
                length,
                stride,
            },
        ));
    }
    known
}
