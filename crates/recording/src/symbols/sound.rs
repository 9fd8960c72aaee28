//! Checks of an ELF file before it is passed to code that trusts its content.
//!
//! Blazesym 0.2.7 reserves the size in the header of a compressed section (elf/parser.rs), and
//! unpacks any amount. It opens any path in a link to debug information. So compressed sections are
//! first unpacked here without keeping the output, and links are checked. A file that would take
//! more memory than its size allows, or would block, is not passed on.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use flate2::bufread::ZlibDecoder;

use crate::packed::ReadAt;
use gpushim_trace::layout::{get_u16, get_u32, get_u64};
use gpushim_trace::regular::open_regular;

// Offsets and numbers of ELF-64, as `/usr/include/elf.h` has them.
const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const COMPRESSION_BYTES: u64 = 24; // Elf64_Chdr
const ZLIB: u32 = 1; // ELFCOMPRESS_ZLIB
const NO_BITS: u32 = 8; // SHT_NOBITS
const COMPRESSED: u64 = 0x800; // SHF_COMPRESSED

/// Unpacked bytes for each byte of a compressed section. Debug information has 3 to 10.
const RATIO: u64 = 100;
/// Unpacked bytes of all compressed sections of a file.
const UNPACKED_MAX: u64 = 1 << 30;
/// Bytes of the names of sections that are read; `LINK_MAX` are the bytes of a link.
const NAMES_MAX: u64 = 4 << 20;
const LINK_MAX: u64 = 4096;
/// Sections that symbol tables are made of: none of them is ever compressed.
const TABLES: [&[u8]; 5] = [b".symtab", b".strtab", b".dynsym", b".dynstr", b".shstrtab"];

/// The part of a file that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// The whole content of the file.
    All,
    /// Its symbol tables only, and the reason if that is worth a line.
    Tables(Option<String>),
    /// Nothing, and the reason.
    Nothing(String),
}

/// A link to debug information in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name of the file with the rest.
    pub name: PathBuf,
    /// The checksum of the file's content (CRC-32) in a `.gnu_debuglink`, else its build id.
    pub rest: Vec<u8>,
}

/// A section, and its name.
struct Section {
    name: Vec<u8>,
    kind: u32,
    flags: u64,
    offset: u64,
    size: u64,
}

/// Returns the part of a file that may be used, if links are followed into these directories.
pub fn look_at(path: &Path, debug_dirs: &[PathBuf]) -> Use {
    let (own, sections) = match of_file(path) {
        Ok(looked) => looked,
        Err(error) => return Use::Nothing(error.to_string()),
    };
    if own != Use::All {
        return own;
    }
    let named = |name: &[u8]| sections.iter().any(|section| section.name == name);
    if named(b".gnu_debuglink") {
        // The other file is checked by itself, see `debug_link`.
        return Use::Tables(None);
    }
    let mut package = path.as_os_str().to_owned();
    package.push(".dwp");
    let mut followed = vec![PathBuf::from(package)];
    for name in [&b".gnu_debugaltlink"[..], b".debug_sup"] {
        if let Some(section) = sections.iter().find(|section| section.name == name) {
            match link(path, section, name == b".debug_sup") {
                Ok(link) => followed.extend(places(path, &link, debug_dirs)),
                Err(error) => return Use::Tables(Some(error.to_string())),
            }
        }
    }
    for other in followed {
        // A link to a missing file does no harm.
        if other.symlink_metadata().is_err() {
            continue;
        }
        match of_file(&other) {
            Ok((Use::All, _)) => {}
            Ok((Use::Tables(why), _)) => return Use::Tables(why),
            Ok((Use::Nothing(why), _)) => return led_to(&other, &why),
            Err(error) => return led_to(&other, &error.to_string()),
        }
    }
    Use::All
}

fn led_to(other: &Path, why: &str) -> Use {
    Use::Tables(Some(format!("it leads to {}: {why}", other.display())))
}

/// Returns the `.gnu_debuglink` of a file: a name without folders, and the checksum of the named
/// file.
pub fn debug_link(path: &Path) -> Option<Link> {
    let (_, sections) = of_file(path).ok()?;
    let section = sections.iter().find(|one| one.name == b".gnu_debuglink")?;
    let mut link = link(path, section, false).ok()?;
    // At most three bytes of padding align the checksum.
    let sum = link.rest.len().checked_sub(4)?;
    link.rest.drain(..sum);
    let is_plain = link.name.file_name() == Some(link.name.as_os_str());
    is_plain.then_some(link)
}

/// Returns the places where blazesym searches the file of a link.
fn places(path: &Path, link: &Link, debug_dirs: &[PathBuf]) -> Vec<PathBuf> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let hex: String = link.rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id = hex.split_at_checked(2).map(|(first, rest)| {
        Path::new(".build-id")
            .join(first)
            .join(format!("{rest}.debug"))
    });
    let mut places = vec![path.with_file_name(&link.name)];
    for dir in debug_dirs {
        places.extend(by_id.iter().map(|by_id| dir.join(by_id)));
        places.push(dir.join(&link.name));
        let folders = path.parent().into_iter().flat_map(Path::ancestors);
        let within = folders.filter_map(|folder| folder.strip_prefix("/").ok());
        places.extend(within.map(|folder| dir.join(folder).join(&link.name)));
    }
    places
}

/// Reads the file name at the beginning of a section, and the bytes after it.
fn link(path: &Path, section: &Section, is_sup: bool) -> io::Result<Link> {
    let (file, _) = open_regular(path)?;
    let content = bytes(&file, section.offset, section.size, LINK_MAX)?;
    // `.debug_sup` begins with version and kind (DWARF 5, 7.3.6).
    let content = content.get(if is_sup { 3.. } else { 0.. });
    let mut parts = content.unwrap_or_default().splitn(2, |byte| *byte == 0);
    let name = OsStr::from_bytes(parts.next().unwrap_or_default());
    Ok(Link {
        name: name.into(),
        rest: parts.next().unwrap_or_default().to_vec(),
    })
}

/// Returns the part of one file that may be used, without its linked files.
fn of_file(path: &Path) -> io::Result<(Use, Vec<Section>)> {
    let (file, meta) = open_regular(path)?;
    let sections = sections(&file, meta.len())?;
    let mut unpacked: u64 = 0;
    for section in &sections {
        if section.flags & COMPRESSED == 0 || section.kind == NO_BITS {
            continue;
        }
        if TABLES.contains(&&section.name[..]) {
            return Err(damaged("its symbol table is compressed"));
        }
        let header = bytes(&file, section.offset, COMPRESSION_BYTES, COMPRESSION_BYTES)?;
        let kind = get_u32(&header, 0).unwrap_or(0);
        let size = get_u64(&header, 8).unwrap_or(u64::MAX);
        if kind != ZLIB {
            // The enabled features of Blazesym do not unpack it either.
            continue;
        }
        unpacked = unpacked.saturating_add(size);
        let packed = section.size.saturating_sub(COMPRESSION_BYTES);
        if size > packed.saturating_mul(RATIO) {
            return Err(damaged("a compressed section claims to be too large"));
        }
        if unpacked > UNPACKED_MAX {
            let why = format!("its debug information unpacks to more than {UNPACKED_MAX} bytes");
            return Ok((Use::Tables(Some(why)), sections));
        }
        let from = section.offset.saturating_add(COMPRESSION_BYTES);
        let input = BufReader::new(ReadAt::new(&file, from).take(packed));
        let most = size.saturating_add(1);
        let read = io::copy(&mut ZlibDecoder::new(input).take(most), &mut io::sink());
        if read.is_ok_and(|read| read > size) {
            return Err(damaged("a compressed section is larger than it claims"));
        }
    }
    Ok((Use::All, sections))
}

fn sections(file: &File, length: u64) -> io::Result<Vec<Section>> {
    let header = bytes(file, 0, HEADER_BYTES as u64, HEADER_BYTES as u64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(damaged("it is no 64-bit ELF file"));
    }
    let table = get_u64(&header, 40).unwrap_or(0);
    let stride = get_u16(&header, 58).unwrap_or(0);
    let count = get_u16(&header, 60).unwrap_or(0);
    let names = get_u16(&header, 62).unwrap_or(0);
    if table == 0 {
        return Ok(Vec::new());
    }
    // A file with more sections than 16 bits count is no module.
    if usize::from(stride) != SECTION_BYTES || count == 0 {
        return Err(damaged("its table of sections makes no sense"));
    }
    let size = u64::from(count) * SECTION_BYTES as u64;
    let table = bytes(file, table, size, length)?;
    let entries: Vec<&[u8]> = table.chunks_exact(SECTION_BYTES).collect();
    let place = |entry: &[u8]| Some((get_u64(entry, 24)?, get_u64(entry, 32)?));
    let names = entries
        .get(usize::from(names))
        .and_then(|entry| place(entry));
    let names = names.ok_or_else(|| damaged("its sections have no names"))?;
    let names = bytes(file, names.0, names.1, NAMES_MAX)?;
    let section = |entry: &&[u8]| {
        let (offset, size) = place(entry)?;
        let at = usize::try_from(get_u32(entry, 0)?).ok()?;
        let name = names.get(at..)?.split(|byte| *byte == 0).next()?;
        Some(Section {
            name: name.to_vec(),
            kind: get_u32(entry, 4)?,
            flags: get_u64(entry, 8)?,
            offset,
            size,
        })
    };
    let sections: Option<Vec<Section>> = entries.iter().map(section).collect();
    sections.ok_or_else(|| damaged("its table of sections makes no sense"))
}

fn bytes(file: &File, at: u64, size: u64, most: u64) -> io::Result<Vec<u8>> {
    if size > most {
        return Err(damaged("a part of it claims to be too large"));
    }
    let size = usize::try_from(size).map_err(|_| damaged("a part of it is too large"))?;
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
