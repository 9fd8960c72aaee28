//! Recordings that cannot be read in place, from a copy: standard input, and traces that are compressed.

use std::fs::File;
use std::io::{IsTerminal, Read, Seek, SeekFrom, Write, stdin};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tempfile::TempDir;

use super::Recording;
use super::forward::forward;
use crate::error::{Error, Result, failed};

/// The most that is copied, bytes. Traces are mostly zeros, which gzip makes a thousandth of, and take no room on disk.
const MOST: u64 = 64 << 30;
/// Bytes other than zeros that may come of each byte of a compressed file, and of any file.
const RATIO: u64 = 64;
const LEAST: u64 = 4 << 20;
/// Bytes that are copied at once.
const CHUNK: usize = 64 << 10;

/// A recording that was opened from a copy, which is deleted with it.
pub(super) struct Unpacked {
    inner: Box<dyn Recording>,
    path: PathBuf,
    problem: Option<String>,
    _folder: TempDir,
}

/// Opens what comes on standard input.
///
/// # Errors
/// It is a terminal, or too long, or cannot be read, or there is no room for the copy; or those of `open`.
pub(super) fn standard_input(
    open: impl Fn(&Path) -> Result<Box<dyn Recording>>,
) -> Result<Box<dyn Recording>> {
    if stdin().is_terminal() {
        return Err(failed!(
            "read standard input: it is a terminal; pass a recording, as in `gpushim report - < FILE`"
        ));
    }
    Unpacked::of(Path::new("-"), stdin().lock(), MOST, open)
}

/// Opens a trace that is compressed, with `open`.
///
/// # Errors
/// It unpacks to more than any trace has, or there is no room for the copy; or those of `open`.
pub(super) fn trace(
    path: &Path,
    file: File,
    open: impl Fn(&Path) -> Result<Box<dyn Recording>>,
) -> Result<Box<dyn Recording>> {
    let length = file.metadata().map_or(0, |meta| meta.len());
    let most = length.saturating_mul(RATIO).saturating_add(LEAST);
    Unpacked::of(path, MultiGzDecoder::new(file), most, open)
}

impl Unpacked {
    /// `most` is the limit of what is not zeros, bytes.
    fn of(
        path: &Path,
        input: impl Read,
        most: u64,
        open: impl Fn(&Path) -> Result<Box<dyn Recording>>,
    ) -> Result<Box<dyn Recording>> {
        let place = path.display();
        let no_copy = |error| {
            failed!(
                "read {place}: a copy in {} failed: {error}",
                std::env::temp_dir().display()
            )
        };
        // Only this user may look into the folder.
        let folder = TempDir::new().map_err(no_copy)?;
        let copy = folder.path().join("copy");
        let mut file = File::create_new(&copy).map_err(no_copy)?;
        let problem =
            copied(input, &mut file, most).map_err(|error| failed!("read {place}: {error}"))?;
        drop(file);
        link_companions(path, &copy);
        // What is said of the copy is true of the original.
        let inner = open(&copy).map_err(|error| {
            let text = error.to_string();
            Error::new(text.replace(&copy.display().to_string(), &place.to_string()))
        })?;
        Ok(Box::new(Unpacked {
            inner,
            path: path.to_path_buf(),
            problem,
            _folder: folder,
        }))
    }
}

/// Makes what lies beside `NAME.gz` for `NAME`, its spool and its symbols, lie beside the copy. Whose they are is looked at
/// when they are opened.
fn link_companions(packed: &Path, copy: &Path) {
    let Some(name) = packed.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    let Some(name) = name.strip_suffix(".gz") else {
        return;
    };
    let folder = packed.parent().filter(|folder| *folder != Path::new(""));
    let Ok(folder) = folder.unwrap_or(Path::new(".")).canonicalize() else {
        return;
    };
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    for entry in entries {
        let beside = entry.file_name();
        let rest = beside.to_str().and_then(|beside| beside.strip_prefix(name));
        let rest = rest.filter(|rest| rest.starts_with(".spool") || *rest == ".symbols");
        if let Some(rest) = rest {
            let mut link = copy.as_os_str().to_os_string();
            link.push(rest);
            // Without it, events and names are missing as where the file is.
            let _ = symlink(entry.path(), link);
        }
    }
}

/// Copies, zeros as holes. What is damaged further on is a problem, what comes before it is copied.
fn copied(mut input: impl Read, copy: &mut File, most: u64) -> Result<Option<String>> {
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

impl Recording for Unpacked {
    forward!(inner: events timeline format wall_ns facts coverage live live_bytes text open_ranges frames names stream caching fact);

    fn path(&self) -> &Path {
        &self.path
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = self.inner.problems();
        problems.extend(self.problem.clone());
        problems
    }
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
