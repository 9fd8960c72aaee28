//! The traces of a run: their expected paths, the existing files, and their bytes on the disk.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::files;
use crate::error::{Context, Result};
use crate::whole::{Unfinished, folder_of};
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

/// Makes the folder of a pattern, and checks that traces can be written into it. A folder whose name
/// depends on the process is made by the process.
///
/// # Errors
/// The folder cannot be made, or not be written to.
pub fn make_folder(pattern: &str) -> Result<()> {
    let folder = folder_of(Path::new(pattern))
        .to_string_lossy()
        .replace("%%", "\0");
    if folder.contains('%') {
        return Ok(());
    }
    let folder = PathBuf::from(folder.replace('\0', "%"));
    let made = std::fs::create_dir_all(&folder);
    made.and_then(|()| Unfinished::beside(&folder.join("trace")))
        .map(drop)
        .context(format!("write traces to {}", folder.display()))
}

/// Bytes that a trace takes on the disk. It is sparse while it is written: its length is not its
/// size on the disk.
pub fn on_disk(trace: &Path) -> u64 {
    let meta = std::fs::symlink_metadata(trace).ok();
    meta.map_or(0, |meta| meta.blocks().saturating_mul(512))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_trace() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.trace");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(100 << 20).expect("long");
        assert!(on_disk(&path) < 1 << 20, "{}", on_disk(&path));
    }

    #[test]
    fn folders_are_made_unless_their_names_depend_on_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |pattern: &str| make_folder(&format!("{}/{pattern}", folder.path().display()));
        make("a/b%%c/%p.trace").expect("made");
        assert!(folder.path().join("a/b%c").is_dir());
        make("%h/x.trace").expect("left to the process");
        assert!(!folder.path().join("%h").exists());
        std::fs::write(folder.path().join("file"), "").expect("written");
        let error = make("file/x.trace").expect_err("no folder").to_string();
        assert!(error.starts_with("write traces to "), "{error}");
    }
}
