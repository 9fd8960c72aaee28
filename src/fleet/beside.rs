//! The summary as a file beside its trace.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::summary::{RankSummary, VERSION};
use crate::error::{Context, Result, failed};
use crate::recording::plain;
use crate::whole::{Readers, write_whole};
use gpushim_trace::regular::read_regular;

/// What comes after the name of a trace, without `.gz`, in the name of its summary.
pub const SUFFIX: &str = ".summary";
/// Bytes of a summary beyond which a file is none: those that are written have a few KiB.
const MOST: u64 = 1 << 20;

/// Where the summary of a trace is.
pub fn path_of(trace: &Path) -> PathBuf {
    let mut name = OsString::from(plain(trace));
    name.push(SUFFIX);
    name.into()
}

/// Writes a summary beside its trace. The file has its name only once it is whole, and is readable to the owner alone,
/// as the trace is.
///
/// # Errors
/// Those of the file system; the earlier summary is then still there.
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
