//! Reads and writes the summary file beside a trace.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::summary::{RankSummary, VERSION};
use crate::error::{Context, Result, failed};
use crate::recording::plain;
use crate::whole::{Readers, write_whole};
use gpushim_trace::regular::read_regular;

/// Suffix of a summary; it follows the name of the trace without `.gz`.
pub const SUFFIX: &str = ".summary";
/// Most bytes of a summary file; a written summary has a few KiB.
const MOST: u64 = 1 << 20;

/// Returns the path of the summary of a trace.
pub fn path_of(trace: &Path) -> PathBuf {
    let mut name = OsString::from(plain(trace));
    name.push(SUFFIX);
    name.into()
}

/// Writes a summary beside its trace. The file gets its name only when it is complete. Only its
/// owner can read it, as with the trace.
///
/// # Errors
/// Errors of the file system. In that case the earlier summary remains.
pub fn write(trace: &Path, summary: &RankSummary) -> Result<()> {
    let path = path_of(trace);
    let place = format!("write {}", path.display());
    let text = serde_json::to_vec(summary).context(place.clone())?;
    write_whole(&path, Readers::Owner, |out| {
        out.write_all(&text)?;
        out.write_all(b"\n")
    })
    .context(place)
}

/// Reads a summary.
///
/// # Errors
/// The file cannot be read, is not a whole summary, or is of a version that is not known.
pub fn read(path: &Path) -> Result<RankSummary> {
    let place = || format!("read the summary {}", path.display());
    let text = read_regular(path, MOST).context(place())?;
    let summary: RankSummary = serde_json::from_slice(&text).context(place())?;
    match summary.gpushim_summary {
        VERSION => Ok(summary),
        0 => Err(failed!("{}: it is no summary of gpushim", place())),
        other => Err(failed!(
            "{}: it is of version {other}, and this command knows version {VERSION}; use a newer gpushim",
            place()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let trace = folder.path().join("run.trace.gz");
        let summary = RankSummary {
            gpushim_summary: VERSION,
            allocations: 7,
            ..RankSummary::default()
        };
        write(&trace, &summary).expect("written");
        let path = folder.path().join("run.trace.summary");
        assert_eq!(read(&path).expect("read"), summary);
        let whole = std::fs::read(&path).expect("read");
        for (text, why) in [
            (&whole[..whole.len() / 2], "EOF"),
            (b"{}".as_slice(), "no summary"),
            (b"{\"gpushim_summary\": 9}".as_slice(), "version 9"),
            (b"".as_slice(), "EOF"),
        ] {
            std::fs::write(&path, text).expect("written");
            let error = read(&path).expect_err("not a summary").to_string();
            assert!(error.contains(why), "{error}");
        }
        let newer = b"{\"gpushim_summary\": 1, \"what_comes\": [1]}";
        std::fs::write(&path, newer).expect("written");
        assert!(
            read(&path).is_ok(),
            "fields that are not known are left out"
        );
    }
}
