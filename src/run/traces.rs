//! The traces of a run: their expected paths, the existing files, and their bytes on the disk.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::files;
use crate::error::{Context, Result};
use crate::whole::folder_of;
use gpushim_config::Setting;

/// The pattern in force as an absolute one, `None` if there is to be no trace.
///
/// # Errors
/// The current directory is gone.
pub fn pattern(settings: &[Setting]) -> Result<Option<String>> {
    let setting = settings
        .iter()
        .find(|setting| setting.variable.name == "GPUSHIM_TRACE");
    let Some(pattern) = setting
        .map(|setting| setting.value.as_str())
        .filter(|value| *value != "off")
    else {
        return Ok(None);
    };
    if Path::new(pattern).is_absolute() {
        return Ok(Some(pattern.to_string()));
    }
    let current = std::env::current_dir().context("find the current directory")?;
    // A directory whose name is no text cannot be put into a variable's text: leave the pattern as
    // it is.
    let Some(current) = current.to_str() else {
        return Ok(Some(pattern.to_string()));
    };
    Ok(Some(format!(
        "{}/{pattern}",
        current.trim_end_matches('/').replace('%', "%%")
    )))
}

/// The files that a pattern may have produced.
pub fn existing(pattern: &str) -> BTreeSet<PathBuf> {
    files::matching(pattern).into_iter().collect()
}

/// Bytes that a trace takes on the disk, with the files of its spool and symbols. The trace is
/// sparse: its length is not its size on the disk.
pub fn on_disk(trace: &Path) -> u64 {
    let taken = |path: &Path| {
        let meta = std::fs::symlink_metadata(path).ok();
        meta.map_or(0, |meta| meta.blocks().saturating_mul(512))
    };
    let entries = std::fs::read_dir(folder_of(trace));
    let name = trace.file_name().unwrap_or_default().to_string_lossy();
    let spool = format!("{name}.");
    let beside = entries.into_iter().flatten().flatten();
    let beside = beside.filter(|entry| entry.file_name().to_string_lossy().starts_with(&spool));
    beside.fold(taken(trace), |sum, entry| {
        sum.saturating_add(taken(&entry.path()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_trace_with_its_spool() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.trace");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(100 << 20).expect("long");
        assert!(on_disk(&path) < 1 << 20, "{}", on_disk(&path));
        std::fs::write(folder.path().join("a.trace.spool"), vec![7; 3 << 20]).expect("written");
        std::fs::write(folder.path().join("a.traces"), vec![7; 3 << 20]).expect("written");
        let bytes = on_disk(&path);
        assert!((3 << 20..4 << 20).contains(&bytes), "{bytes}");
    }
}
