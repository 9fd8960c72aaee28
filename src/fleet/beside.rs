//! The summary attached to a trace, or in a file of its own.

use std::path::Path;

use super::summary::{RankSummary, VERSION};
use crate::compress::Attachment;
use crate::error::{Context, Result, failed};
use gpushim_trace::attached::{self, Attached};
use gpushim_trace::regular::{open_regular, read_regular};

/// Suffix of a summary in a file; it follows the name of the trace without `.gz`.
pub const SUFFIX: &str = ".summary";
/// Most bytes of a summary file; a written summary has a few KiB.
const MOST: u64 = 1 << 20;

/// Returns a summary as it is attached to its trace.
///
/// # Errors
/// Memory is short.
pub fn attachment(summary: &RankSummary) -> Result<Attachment> {
    let mut text = serde_json::to_vec(summary)?;
    text.push(b'\n');
    Ok((Attached::Summary, text))
}

/// Reads the summary attached to a trace, if there is one.
///
/// # Errors
/// The trace cannot be read, or the errors of [`read`].
pub fn read_attached(trace: &Path) -> Result<Option<RankSummary>> {
    let place = || format!("read the summary in {}", trace.display());
    let (file, _) = open_regular(trace).context(place())?;
    let text = attached::read(&file, Attached::Summary).context(place())?;
    text.map(|text| parsed(&text, place)).transpose()
}

/// Reads a summary from a file of its own, as an earlier form has it beside the trace.
///
/// # Errors
/// The file cannot be read, is not a whole summary, or is of a version that is not known.
pub fn read(path: &Path) -> Result<RankSummary> {
    let place = || format!("read the summary {}", path.display());
    let text = read_regular(path, MOST).context(place())?;
    parsed(&text, place)
}

fn parsed(text: &[u8], place: impl Fn() -> String) -> Result<RankSummary> {
    let summary: RankSummary = serde_json::from_slice(text).context(place())?;
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
        let trace = folder.path().join("run.trace");
        let summary = RankSummary {
            gpushim_summary: VERSION,
            allocations: 7,
            ..RankSummary::default()
        };
        std::fs::write(&trace, "any").expect("written");
        assert_eq!(read_attached(&trace).expect("read"), None);
        let (kind, whole) = attachment(&summary).expect("text");
        attached::attach(&trace, kind, &whole).expect("attached");
        assert_eq!(read_attached(&trace).expect("read"), Some(summary.clone()));
        let path = folder.path().join("run.trace.summary");
        std::fs::write(&path, &whole).expect("written");
        assert_eq!(read(&path).expect("read"), summary);
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
