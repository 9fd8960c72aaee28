//! Data about an ended process at the end of its trace: the summary, the names of its functions.
//!
//! Each is a skippable frame of zstd: tools that unpack a packed trace leave it out. Its last bytes
//! are a footer. So a reader finds all of them from the end of the file, without the trace.
//! `docs/trace-format.md` has the form.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::fnv;
use crate::layout::{get_u32, get_u64, put};

/// Sort of attached data, by its number in the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// Summary of the rank, as JSON.
    Summary = 1,
    /// Names of the functions of its stacks, as text.
    Symbols = 2,
}

impl Attached {
    /// Largest number of unpacked bytes that are read.
    fn most(self) -> u64 {
        match self {
            Attached::Summary => 1 << 20,
            Attached::Symbols => 256 << 20,
        }
    }
}

/// Magic number of the skippable frame.
const FRAME: u32 = 0x184D_2A57;
/// Version of the form; a reader leaves others out.
const VERSION: u32 = 1;
/// Bytes before and after the packed data.
const HEAD: u64 = 8;
const FOOT: u64 = 48;
/// Last bytes of the footer.
const MAGIC: [u8; 8] = *b"gpuattch";
/// Largest number of attachments that are looked for.
const COUNT_MAX: usize = 64;
/// Level of zstd for names: they are written once and read seldom.
const LEVEL: i32 = 9;

/// Place and footer of an attachment, before its content is read.
#[derive(Clone, Copy, Debug)]
struct Found {
    begin: u64,
    kind: u32,
    version: u32,
    plain: u64,
    packed: u64,
    checksum: u64,
}

/// Returns the bytes of the attachment of some data.
///
/// # Errors
/// Memory is short, or the data has 4 GiB or more.
pub fn encode(kind: Attached, content: &[u8]) -> io::Result<Vec<u8>> {
    let packed = match kind {
        // A few KiB, which other programs read without zstd.
        Attached::Summary => content.to_vec(),
        Attached::Symbols => zstd::bulk::compress(content, LEVEL)?,
    };
    let length = u32::try_from(packed.len() as u64 + FOOT).map_err(io::Error::other)?;
    let mut foot = [0; FOOT as usize];
    put(&mut foot, 0, &(kind as u32).to_le_bytes());
    put(&mut foot, 4, &VERSION.to_le_bytes());
    put(&mut foot, 8, &(content.len() as u64).to_le_bytes());
    put(&mut foot, 16, &(packed.len() as u64).to_le_bytes());
    put(&mut foot, 24, &fnv::words(&packed).to_le_bytes());
    let sum = fnv::words(&foot[..32]);
    put(&mut foot, 32, &sum.to_le_bytes());
    put(&mut foot, 40, &MAGIC);
    let head = [FRAME.to_le_bytes(), length.to_le_bytes()].concat();
    Ok([&head, &packed[..], &foot].concat())
}

/// Attaches data to the trace of an ended process. A later attachment of the same kind replaces it
/// for readers.
///
/// # Errors
/// The file cannot be written by this user, or another process has it locked. It is then unchanged.
pub fn attach(path: &Path, kind: Attached, content: &[u8]) -> io::Result<()> {
    let frame = encode(kind, content)?;
    let file = gpushim_descriptors::open(path)?;
    // SAFETY: a system call with plain numbers, on a descriptor that is open.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if locked != 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    let length = file.metadata()?.len();
    file.write_all_at(&frame, length)
        .inspect_err(|_| drop(file.set_len(length)))
}

/// Returns the offset at which the attachments of a file of this length begin; the length if it has
/// none.
pub fn begin(file: &File, length: u64) -> u64 {
    all(file, length).last().map_or(length, |found| found.begin)
}

/// Returns the newest data of a kind; `None` if the file has none.
///
/// # Errors
/// The error of the file system; [`io::ErrorKind::InvalidData`] if it is damaged or too long.
pub fn read(file: &File, kind: Attached) -> io::Result<Option<Vec<u8>>> {
    let length = file.metadata()?.len();
    let mut all = all(file, length);
    let Some(found) = all.find(|found| found.kind == kind as u32 && found.version == VERSION)
    else {
        return Ok(None);
    };
    let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    // zstd makes nothing much longer.
    if found.plain > kind.most() || found.packed > kind.most() * 2 {
        return Err(invalid("it is longer than such data is"));
    }
    let mut packed = vec![0; found.packed as usize];
    file.read_exact_at(&mut packed, found.begin + HEAD)?;
    if fnv::words(&packed) != found.checksum {
        return Err(invalid("it does not match its checksum: damaged"));
    }
    let plain = match kind {
        Attached::Summary => packed,
        Attached::Symbols => zstd::bulk::decompress(&packed, found.plain as usize)?,
    };
    match plain.len() as u64 == found.plain {
        true => Ok(Some(plain)),
        false => Err(invalid("it has another length than its footer says")),
    }
}

/// Finds the attachments of a file, the newest first.
fn all(file: &File, length: u64) -> impl Iterator<Item = Found> {
    let next = |found: &Found| found_before(file, found.begin);
    std::iter::successors(found_before(file, length), next).take(COUNT_MAX)
}

/// Finds the attachment that ends at an offset.
fn found_before(file: &File, end: u64) -> Option<Found> {
    let mut foot = [0; FOOT as usize];
    file.read_exact_at(&mut foot, end.checked_sub(FOOT)?).ok()?;
    let is_one = foot.get(40..)? == MAGIC && get_u64(&foot, 32)? == fnv::words(foot.get(..32)?);
    let packed = get_u64(&foot, 16).filter(|_| is_one)?;
    let begin = end.checked_sub(packed.checked_add(HEAD + FOOT)?)?;
    let mut head = [0; HEAD as usize];
    file.read_exact_at(&mut head, begin).ok()?;
    let is_framed = get_u32(&head, 0)? == FRAME && u64::from(get_u32(&head, 4)?) == packed + FOOT;
    is_framed.then_some(Found {
        begin,
        kind: get_u32(&foot, 0)?,
        version: get_u32(&foot, 4)?,
        plain: get_u64(&foot, 8)?,
        packed,
        checksum: get_u64(&foot, 24)?,
    })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_each_kind_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "the trace").unwrap();
        let file = File::open(&path).unwrap();
        let length = || file.metadata().unwrap().len();
        let get = |kind| read(&file, kind).unwrap();
        assert_eq!((get(Attached::Summary), begin(&file, length())), (None, 9));
        attach(&path, Attached::Summary, b"first").unwrap();
        attach(&path, Attached::Symbols, &[7; 1 << 20]).unwrap();
        attach(&path, Attached::Summary, b"second").unwrap();
        assert_eq!(get(Attached::Summary), Some(b"second".to_vec()));
        assert_eq!(get(Attached::Symbols), Some(vec![7; 1 << 20]));
        assert_eq!(begin(&file, length()), 9);
        // Another program of zstd leaves them out.
        let packed = zstd::bulk::compress(b"the trace", 1).unwrap();
        let all = std::fs::read(&path).unwrap();
        let packed = [&packed, &all[9..]].concat();
        assert_eq!(zstd::stream::decode_all(&packed[..]).unwrap(), b"the trace");
    }

    #[test]
    fn damage_is_never_data() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let whole = [
            b"the trace",
            &encode(Attached::Summary, b"some data").unwrap()[..],
        ]
        .concat();
        for at in 9..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            for content in [&damaged[..], &whole[..at]] {
                std::fs::write(&path, content).unwrap();
                let file = File::open(&path).unwrap();
                let data = read(&file, Attached::Summary);
                assert!(!matches!(data, Ok(Some(_))), "{at}: {data:?}");
                begin(&file, content.len() as u64);
            }
        }
        // Lengths of another world.
        let foot = whole.len() - FOOT as usize;
        for claim in [u64::MAX, 1 << 40, whole.len() as u64] {
            let mut damaged = whole.clone();
            put(&mut damaged, foot + 16, &claim.to_le_bytes());
            let sum = fnv::words(&damaged[foot..foot + 32]);
            put(&mut damaged, foot + 32, &sum.to_le_bytes());
            std::fs::write(&path, &damaged).unwrap();
            let file = File::open(&path).unwrap();
            assert!(matches!(read(&file, Attached::Summary), Ok(None)));
        }
    }
}
