//! Names of code that is in no file, as JITs write them for perf: `/tmp/perf-PID.map`.
//!
//! Lines `BEGIN SIZE NAME`, numbers in hexadecimal without a prefix (Linux,
//! tools/perf/Documentation/jit-interface.txt). The file grows while the program runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The most bytes of a map that are read: a runaway JIT must not fill our memory.
const MOST: u64 = 256 << 20;

/// One process's map, as far as it has been read.
#[derive(Debug, Default)]
pub struct PerfMap {
    path: PathBuf,
    /// Bytes read so far, whole lines only.
    read: u64,
    /// Begin of a piece of code: its bytes and name. A later line takes the place of an earlier one.
    names: BTreeMap<u64, (u32, String)>,
}

impl PerfMap {
    /// The map of a process; nothing is read yet.
    pub fn of_process(pid: u32) -> PerfMap {
        PerfMap::at(Path::new(&format!("/tmp/perf-{pid}.map")))
    }

    /// The map at a path; nothing is read yet.
    pub fn at(path: &Path) -> PerfMap {
        PerfMap {
            path: path.to_path_buf(),
            ..PerfMap::default()
        }
    }

    /// Reads what was added since the last time. Returns whether that was anything.
    ///
    /// # Errors
    /// What the file system said; a file that does not exist yet is none.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        if length < self.read {
            // Another process had this number, or the program began anew.
            (self.read, self.names) = (0, BTreeMap::new());
        }
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = Vec::new();
        file.take(MOST.saturating_sub(self.read))
            .read_to_end(&mut text)?;
        // The last line may not be complete yet.
        let whole = text.iter().rposition(|byte| *byte == b'\n');
        let Some(lines) = whole.and_then(|end| text.get(..=end)) else {
            return Ok(false);
        };
        for line in lines.split(|byte| *byte == b'\n') {
            if let Some((begin, size, name)) = parsed(&String::from_utf8_lossy(line)) {
                self.names.insert(begin, (size, name.to_string()));
            }
        }
        self.read += lines.len() as u64;
        Ok(true)
    }

    /// The code that contains an address: begin, bytes, name.
    pub fn find(&self, address: u64) -> Option<(u64, u32, &str)> {
        let (begin, (size, name)) = self.names.range(..=address).next_back()?;
        (address - begin < u64::from(*size)).then_some((*begin, *size, name))
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

    #[test]
    fn a_map_is_read_as_it_grows() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-1.map");
        let mut map = PerfMap::at(&path);
        assert!(!map.refresh().expect("no file is no error"));
        let mut file = File::create(&path).expect("a file");
        write!(file, "7f0010 20 py::main:train.py\n7f0040 10 py::half").expect("written");
        assert!(map.refresh().expect("read"));
        assert_eq!(
            map.find(0x7f0010),
            Some((0x7f0010, 32, "py::main:train.py"))
        );
        assert_eq!(
            map.find(0x7f002f).map(|found| found.2),
            Some("py::main:train.py")
        );
        assert_eq!(map.find(0x7f0030), None);
        assert_eq!(map.find(0x7f0041), None, "the line was not complete");
        writeln!(
            file,
            " a name:with spaces\nnonsense\n0x10 zz x\n7f0010 8 anew"
        )
        .expect("written");
        assert!(map.refresh().expect("read"));
        assert_eq!(
            map.find(0x7f0041).map(|found| found.2),
            Some("py::half a name:with spaces")
        );
        assert_eq!(map.find(0x7f0010), Some((0x7f0010, 8, "anew")));
        assert!(!map.refresh().expect("nothing new"));
    }

    #[test]
    fn a_file_that_shrank_is_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("perf-2.map");
        std::fs::write(&path, "1000 10 old and long enough\n").expect("written");
        let mut map = PerfMap::at(&path);
        map.refresh().expect("read");
        std::fs::write(&path, "2000 10 new\n").expect("written");
        map.refresh().expect("read");
        assert_eq!((map.find(0x1000), map.find(0x2000).is_some()), (None, true));
    }
}
