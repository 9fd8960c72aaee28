//! All events of a run, compressed, in files beside the trace: the mode `full`.
//!
//! A thread of its own follows the ring and writes what it held, frame by frame, before it is
//! overwritten. The threads that record wait for nothing. What the disk does not take, or what was
//! overwritten first, is counted. `docs/trace-format.md` says how the files are made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

mod columns;
mod file;
mod frame;
mod thread;

pub use file::SpoolLimits;
pub(crate) use frame::{Budget, Span, scan};
pub use thread::{SpoolOptions, SpoolStatus, Spooler, Tell};

/// The most events of a frame.
pub(crate) const FRAME_EVENTS: usize = 32 << 10;

/// The file of a segment: `<trace>.spool`, then `<trace>.spool.1` and so on.
pub(crate) fn segment_path(trace: &Path, segment: u64) -> PathBuf {
    let mut name = OsString::from(trace.as_os_str());
    name.push(".spool");
    if segment > 0 {
        name.push(format!(".{segment}"));
    }
    PathBuf::from(name)
}

/// The segments that lie beside a trace, oldest first.
pub(crate) fn segments(trace: &Path) -> Vec<(u64, PathBuf)> {
    let Some(name) = trace.file_name() else {
        return Vec::new();
    };
    let folder = match trace.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut prefix = name.to_os_string();
    prefix.push(".spool");
    let number = |path: &Path| {
        let rest = path.file_name()?.as_encoded_bytes();
        match rest.strip_prefix(prefix.as_encoded_bytes())? {
            [] => Some(0),
            rest => std::str::from_utf8(rest)
                .ok()?
                .strip_prefix('.')?
                .parse()
                .ok(),
        }
    };
    let mut found: Vec<(u64, PathBuf)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter_map(|path| Some((number(&path)?, path)))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests;
