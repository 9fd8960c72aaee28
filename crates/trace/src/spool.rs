//! All events of a run, compressed, in files beside the trace: the mode `full`.
//!
//! A thread of the spool follows the ring and writes its events, frame by frame, before they are
//! overwritten. The recording threads wait for nothing. Events that the disk does not take, or that
//! are overwritten before, are counted. `docs/trace-format.md` defines the files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

mod columns;
mod file;
mod frame;
mod thread;

pub use file::SpoolLimits;
pub(crate) use frame::{Budget, Span, scan};
pub use thread::{SpoolOptions, SpoolStatus, Spooler, Tell};

/// Largest number of events of a frame.
pub(crate) const FRAME_EVENTS: usize = 32 << 10;

/// Returns the file of a segment: `<trace>.spool`, then `<trace>.spool.1` and so on.
pub(crate) fn segment_path(trace: &Path, segment: u64) -> PathBuf {
    let mut name = OsString::from(trace.as_os_str());
    name.push(".spool");
    if segment > 0 {
        name.push(format!(".{segment}"));
    }
    PathBuf::from(name)
}

/// Returns the segments that lie beside a trace, oldest first.
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
