//! Copies of files that are compressed or read from standard input: with zeros as holes, and
//! limited in proportion to the bytes of the file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Result, failed};

/// Highest number of copied bytes. Traces are mostly zeros: gzip packs them to a thousandth, and
/// they take no room on disk.
pub(super) const MOST: u64 = 64 << 30;
/// Bytes other than zeros for each byte of a compressed file; `LEAST` are allowed for any file.
const RATIO: u64 = 64;
const LEAST: u64 = 4 << 20;
/// Number of bytes of one read.
const CHUNK: usize = 64 << 10;

/// Returns the path of a compressed file without its `.gz`.
pub fn plain(path: &Path) -> PathBuf {
    match path.extension() {
        Some(extension) if extension == "gz" => path.with_extension(""),
        _ => path.to_path_buf(),
    }
}

/// Returns the highest number of bytes other than zeros that a compressed file may contain.
pub fn most(file: &File) -> u64 {
    let length = file.metadata().map_or(0, |meta| meta.len());
    length.saturating_mul(RATIO).saturating_add(LEAST)
}

/// Copies, zeros as holes. Damage in the input is returned as a problem; the data before it is
/// copied.
pub(super) fn copied(mut input: impl Read, copy: &mut File, most: u64) -> Result<Option<String>> {
    let mut chunk = vec![0; CHUNK];
    let (mut all, mut filled) = (0_u64, 0_u64);
    let problem = loop {
        let read = match input.read(&mut chunk) {
            Ok(0) => break None,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => break Some(format!("it cannot be read beyond byte {all}: {error}")),
        };
        let bytes = chunk.get(..read).unwrap_or_default();
        all = all.saturating_add(read as u64);
        if bytes.iter().all(|byte| *byte == 0) {
            copy.seek(SeekFrom::Start(all))?;
        } else {
            filled = filled.saturating_add(read as u64);
            copy.write_all(bytes)?;
        }
        if filled > most || all > MOST {
            return Err(failed!(
                "it unpacks to more than a recording of its size should have; if you trust it, unpack it first"
            ));
        }
    };
    copy.set_len(all)?;
    Ok(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_holes_and_bombs_are_refused() {
        let mut copy = tempfile::tempfile().unwrap();
        let input = [1; 10].chain(std::io::repeat(0).take(100 << 20));
        assert_eq!(copied(input, &mut copy, 1 << 20).unwrap(), None);
        assert_eq!(copy.metadata().unwrap().len(), 10 + (100 << 20));
        let mut copy = tempfile::tempfile().unwrap();
        let error = copied(std::io::repeat(1).take(100 << 20), &mut copy, 1 << 20);
        assert!(error.unwrap_err().to_string().contains("unpacks to more"));
        assert!(copy.metadata().unwrap().len() < 2 << 20);
    }
}
