//! Names of code that is in no file, as JITs write them for perf: `/tmp/perf-PID.map`.
//!
//! Lines have the form `BEGIN SIZE NAME`, numbers in hexadecimal without a prefix (Linux,
//! tools/perf/Documentation/jit-interface.txt). The file grows while the program runs.
//!
//! The path is in a folder shared by all users. So the file is read only if it:
//!
//! - is regular, and no link;
//! - has one name;
//! - belongs to a trusted owner.
//!
//! It is read in one stream, and only the requested names are kept. The requests bound the memory.
//! `FILE_MAX` bounds the time of a pass, and `READ_MAX` the time of all passes.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::regular::open_regular_itself;

/// Largest number of bytes of a map that is read.
const FILE_MAX: u64 = 64 << 20;
/// Largest number of bytes read of a map in all passes together. Beyond that no more names are
/// found.
const READ_MAX: u64 = 1 << 30;
/// Largest number of bytes of a line; the rest of a longer name is cut off.
const LINE_MAX: usize = 1 << 10;
/// Number of bytes read at once.
const AT_ONCE: usize = 64 << 10;

/// Piece of code with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// First address of the code.
    pub begin: u64,
    /// Length of the code in bytes.
    pub size: u32,
    /// Name of the code, as the map has it.
    pub name: String,
}

/// Perf map of one process.
///
/// ```
/// use gpushim_trace::perf_map::PerfMap;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// std::fs::write(&path, "7f0000001000 40 py::forward:/home/user/train.py\n")?;
/// let mut map = PerfMap::at(&path);
/// let names = map.find(&[0x7f00_0000_1010], true)?;
/// let code = names.get(&0x7f00_0000_1010).ok_or("the map names the code")?;
/// assert_eq!((code.name.as_str(), code.size), ("py::forward:/home/user/train.py", 0x40));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PerfMap {
    path: PathBuf,
    /// Users who may own the file.
    owners: [u32; 2],
    /// Bytes read so far, whole lines only.
    done: u64,
    /// Bytes read in all passes.
    read: u64,
}

impl PerfMap {
    /// Returns the map of a process, if it belongs to this process's user or to root. Nothing is
    /// read yet.
    pub fn of_process(pid: u32) -> PerfMap {
        PerfMap::at(Path::new(&format!("/tmp/perf-{pid}.map")))
    }

    /// Returns the map at a path, if it belongs to this process's user or to root. Nothing is read
    /// yet.
    pub fn at(path: &Path) -> PerfMap {
        // SAFETY: it takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        PerfMap {
            path: path.to_path_buf(),
            owners: [user, 0],
            done: 0,
            read: 0,
        }
    }

    /// Accepts the map only if it belongs to this user.
    pub fn owned_by(self, user: u32) -> PerfMap {
        PerfMap {
            owners: [user; 2],
            ..self
        }
    }

    /// Returns the file system's metadata of the map; `None` if there is no map that may be read.
    pub fn metadata(&self) -> Option<Metadata> {
        self.open().ok()?.map(|(_, meta)| meta)
    }

    /// Returns the code at each of these addresses, by address, as far as the map names it. If
    /// several lines contain an address, the last one counts. The whole map is read if `anew`, else
    /// only the lines added since the last pass.
    ///
    /// # Errors
    /// The error of the file system, or a file that is not trusted. A missing file is no error.
    pub fn find(&mut self, addresses: &[u64], anew: bool) -> io::Result<BTreeMap<u64, Named>> {
        let mut found = BTreeMap::new();
        let Some((mut file, meta)) = self.open()? else {
            return Ok(found);
        };
        let length = meta.len();
        if length > FILE_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        // A shorter file is another process's, or the program began anew.
        let from = if anew || length < self.done {
            0
        } else {
            self.done
        };
        let cost = length - from;
        if cost > READ_MAX - self.read {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        self.read += cost;
        let mut asked: Vec<u64> = addresses.to_vec();
        asked.sort_unstable();
        file.seek(SeekFrom::Start(from))?;
        let mut input = BufReader::with_capacity(AT_ONCE, file.take(cost));
        self.done = from;
        let mut line = Vec::new();
        while let Some(bytes) = next_line(&mut input, &mut line)? {
            self.done += bytes;
            let text = String::from_utf8_lossy(&line);
            let Some((begin, size, name)) = parsed(&text) else {
                continue;
            };
            let end = begin.saturating_add(u64::from(size));
            let first = asked.partition_point(|address| *address < begin);
            let within = asked.iter().skip(first).take_while(|one| **one < end);
            for address in within {
                let name = name.to_string();
                found.insert(*address, Named { begin, size, name });
            }
        }
        Ok(found)
    }

    fn open(&self) -> io::Result<Option<(File, Metadata)>> {
        let (file, meta) = match open_regular_itself(&self.path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // A second name would let its creator choose which of the owner's files is read.
        if !self.owners.contains(&meta.uid()) || meta.nlink() > 1 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Some((file, meta)))
    }
}

/// Reads the next whole line into `line`, without the bytes beyond [`LINE_MAX`]. Returns its bytes
/// in the file with its line feed. `None` if there are no more whole lines: the last may be
/// incomplete.
fn next_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    line.clear();
    let mut bytes = 0;
    loop {
        let buffer = input.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = buffer
            .get(..end.unwrap_or(buffer.len()))
            .unwrap_or_default();
        let room = LINE_MAX.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(part.get(..room).unwrap_or_default());
        let taken = part.len() + usize::from(end.is_some());
        input.consume(taken);
        bytes += taken as u64;
        if end.is_some() {
            return Ok(Some(bytes));
        }
    }
}

fn parsed(line: &str) -> Option<(u64, u32, &str)> {
    let (begin, rest) = line.split_once(' ')?;
    let (size, name) = rest.split_once(' ')?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let name = name.trim_end();
    let size = u32::try_from(number(size)?).ok()?;
    (!name.is_empty()).then_some((number(begin)?, size, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(map: &mut PerfMap, addresses: &[u64], anew: bool) -> Vec<(u64, String)> {
        let found = map.find(addresses, anew).expect("read");
        let one = |(address, named): (u64, Named)| (address, named.name);
        found.into_iter().map(one).collect()
    }

    #[test]
    fn a_map_is_read_as_it_grows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-1.map");
        let mut map = PerfMap::at(&path);
        assert_eq!(names(&mut map, &[1], true), [], "no file is no error");
        let mut file = File::create(&path).expect("a file");
        write!(file, "7f0010 20 py::main:train.py\n7f0040 10 py::half").expect("written");
        let all = [0x7f_000f, 0x7f_0010, 0x7f_002f, 0x7f_0030, 0x7f_0041];
        let main = "py::main:train.py".to_string();
        assert_eq!(
            names(&mut map, &all, true),
            [(0x7f_0010, main.clone()), (0x7f_002f, main)],
            "the last line was not complete"
        );
        writeln!(
            file,
            " a name:with spaces\nnonsense\n0x10 zz x\n7f0010 8 anew"
        )
        .expect("written");
        let half = "py::half a name:with spaces".to_string();
        assert_eq!(
            names(&mut map, &all, false),
            [(0x7f_0010, "anew".to_string()), (0x7f_0041, half)],
            "only what was added is read, and the last line counts"
        );
        assert_eq!(names(&mut map, &all, false), [], "nothing new");
        let again = map.find(&[0x7f_0010], true).expect("read");
        let anew = Named {
            begin: 0x7f_0010,
            size: 8,
            name: "anew".to_string(),
        };
        assert_eq!(again.get(&0x7f_0010), Some(&anew));
    }

    #[test]
    fn a_file_that_shrank_is_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-2.map");
        std::fs::write(&path, "1000 10 old and long enough\n").expect("written");
        let mut map = PerfMap::at(&path);
        assert_eq!(names(&mut map, &[0x1000], true).len(), 1);
        std::fs::write(&path, "2000 10 new\n").expect("written");
        let new = [(0x2000, "new".to_string())];
        assert_eq!(names(&mut map, &[0x1000, 0x2000], false), new);
    }

    #[test]
    fn what_somebody_else_put_there_is_not_read() {
        use std::os::unix::ffi::OsStrExt;

        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-3.map");
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o666) }, 0);
        let mut map = PerfMap::at(&path);
        assert!(map.find(&[1], true).is_err(), "a pipe");
        let other = folder.path().join("other");
        std::fs::write(&other, "1 10 f\n").expect("written");
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&other, &path).expect("linked");
        assert!(map.find(&[1], true).is_err(), "a link");
        std::fs::remove_file(&path).expect("removed");
        std::fs::hard_link(&other, &path).expect("linked");
        assert!(map.find(&[1], true).is_err(), "a file with another name");
        std::fs::remove_file(&other).expect("removed");
        assert_eq!(names(&mut map, &[1], true).len(), 1);
        let owner = std::fs::metadata(&path).expect("there").uid();
        assert!(map.clone().owned_by(owner).find(&[1], true).is_ok());
        let mut of_other = map.owned_by(owner + 1);
        assert!(of_other.find(&[1], true).is_err(), "another user's");
    }

    #[test]
    fn a_map_without_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-4.map");
        let long = "x".repeat(10 * LINE_MAX);
        std::fs::write(&path, format!("10 10 {long}\n20 10 f\n")).expect("written");
        let mut map = PerfMap::at(&path);
        let found = map.find(&[0x10, 0x20], true).expect("read");
        let lengths: Vec<usize> = found.values().map(|named| named.name.len()).collect();
        assert_eq!(lengths, [LINE_MAX - "10 10 ".len(), 1]);
        let file = File::options().write(true).open(&path).expect("opened");
        file.set_len(FILE_MAX).expect("made longer");
        let passes = (0..20).filter(|_| map.find(&[0x10], true).is_ok()).count() as u64;
        assert_eq!(
            passes,
            (READ_MAX - 1) / FILE_MAX,
            "what is read in all is bounded"
        );
        file.set_len(FILE_MAX + 1).expect("made longer");
        assert!(PerfMap::at(&path).find(&[0x10], true).is_err(), "too large");
    }
}
