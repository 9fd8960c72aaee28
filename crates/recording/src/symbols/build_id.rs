//! The build id of an ELF file: the note of type 3 whose owner is `GNU`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gpushim_trace::layout::{get_u16, get_u32, get_u64};
use gpushim_trace::regular::open_regular;

// Offsets and numbers of ELF-64, as `/usr/include/elf.h` has them.
const HEADER_BYTES: usize = 64;
const SECTION: u32 = 7; // SHT_NOTE
const SEGMENT: u32 = 4; // PT_NOTE
const BUILD_ID: u32 = 3; // NT_GNU_BUILD_ID
const OWNER: &[u8] = b"GNU\0";

/// Bytes that notes have at most. A longer part is no note, or damaged.
const NOTES_MAX: u64 = 1 << 20;

/// Returns the build id of a file, `None` if it has none.
///
/// # Errors
/// An error of the file system, or the file is no 64-bit little-endian ELF file.
pub fn of_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let (file, _) = open_regular(path)?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Sections come first: in a separate debug file the segments are the module's, and lie
    // elsewhere.
    let sections = Table {
        offset: get_u64(&header, 40),
        stride: get_u16(&header, 58),
        count: get_u16(&header, 60),
    };
    let found = sections.entries(&file).find_map(|entry| {
        let is_note = get_u32(&entry, 4) == Some(SECTION);
        is_note.then(|| notes(&file, &entry, 24, 32, 48))?
    });
    let segments = Table {
        offset: get_u64(&header, 32),
        stride: get_u16(&header, 54),
        count: get_u16(&header, 56),
    };
    Ok(found.or_else(|| {
        segments.entries(&file).find_map(|entry| {
            let is_note = get_u32(&entry, 0) == Some(SEGMENT);
            is_note.then(|| notes(&file, &entry, 8, 32, 48))?
        })
    }))
}

/// Bytes of a table with the most sections that a 16-bit number counts, of 64 bytes each.
const TABLE_MAX: usize = 4 << 20;

/// A table of sections or segments.
struct Table {
    offset: Option<u64>,
    stride: Option<u16>,
    count: Option<u16>,
}

impl Table {
    fn entries(self, file: &File) -> impl Iterator<Item = Vec<u8>> {
        let (stride, count) = (self.stride.unwrap_or(0), self.count.unwrap_or(0));
        let size = usize::from(stride) * usize::from(count);
        let mut bytes = vec![0; if size > TABLE_MAX { 0 } else { size }];
        if self
            .offset
            .is_none_or(|at| file.read_exact_at(&mut bytes, at).is_err())
        {
            bytes.clear();
        }
        let stride = usize::from(stride).max(1);
        (0..bytes.len() / stride).map(move |i| bytes[i * stride..][..stride].to_vec())
    }
}

/// Returns the build id among the notes of a table's entry. `offset`, `size` and `align` are the
/// places of these fields in the entry.
fn notes(file: &File, entry: &[u8], offset: usize, size: usize, align: usize) -> Option<Vec<u8>> {
    let size = get_u64(entry, size).filter(|size| *size <= NOTES_MAX)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut bytes, get_u64(entry, offset)?)
        .ok()?;
    let align = if get_u64(entry, align) == Some(8) {
        8
    } else {
        4
    };
    let mut at = 0;
    loop {
        let name = at + 12;
        let name_end = name + get_u32(&bytes, at)? as usize;
        let id = name_end.next_multiple_of(align);
        let id_end = id + get_u32(&bytes, at + 4)? as usize;
        let kind = get_u32(&bytes, at + 8)?;
        if kind == BUILD_ID && bytes.get(name..name_end)? == OWNER {
            return bytes
                .get(id..id_end)
                .filter(|id| !id.is_empty())
                .map(<[u8]>::to_vec);
        }
        at = id_end.next_multiple_of(align);
    }
}
