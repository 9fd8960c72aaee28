//! Spools of an earlier form: files `<trace>.spool`, `<trace>.spool.1` and so on, beside the trace.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::regular::open_companion;

/// Opens the files of a spool beside a trace. Adds those that cannot be read to `problems`.
pub fn files(trace: &Path, problems: &mut Vec<String>) -> Vec<(PathBuf, File, Range<u64>)> {
    let mut files = Vec::new();
    for path in paths(trace) {
        match open_companion(&path, trace) {
            Ok((file, meta)) => files.push((path, file, 0..meta.len())),
            Err(error) => problems.push(format!(
                "the spool in {}: it cannot be read: {error}",
                path.display()
            )),
        }
    }
    files
}

fn paths(trace: &Path) -> Vec<PathBuf> {
    let folder = trace.parent().filter(|folder| *folder != Path::new(""));
    let mut prefix = trace.file_name().unwrap_or_default().to_os_string();
    prefix.push(".spool");
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        let rest = name.strip_prefix(prefix.as_encoded_bytes());
        rest.is_some_and(|rest| match rest {
            [] => true,
            [b'.', number @ ..] => !number.is_empty() && number.iter().all(u8::is_ascii_digit),
            _ => false,
        })
    };
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_one).collect()
}
