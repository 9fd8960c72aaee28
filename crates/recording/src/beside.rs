//! Companions of a compressed trace of an earlier form, its spool and its symbols, copied beside the
//! copy that is read.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::copied::{copied, most, plain};
use crate::error::{Context, Result};
use crate::whole::folder_of;
use gpushim_trace::regular::open_companion;

/// Words after the name of a trace in the names of its companions, before a number.
const COMPANIONS: [&str; 2] = ["spool", "symbols"];
/// Words in the names of files that are not needed to read the trace.
const OTHERS: [&str; 2] = ["summary", "autopsy"];

/// Puts the companions of a compressed trace beside its copy: of `run.trace.gz`, `run.trace.spool`,
/// `run.trace.spool.1` and so on, and `run.trace.symbols`. Each may also be compressed. Returns the
/// problems, sentences that name the files.
pub(super) fn bring(trace: &Path, copy: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, suffix) in companions(trace) {
        let mut name = copy.as_os_str().to_os_string();
        name.push(".");
        name.push(&suffix);
        match brought(&path, trace, Path::new(&name)) {
            Ok(None) => {}
            Ok(Some(problem)) => problems.push(format!("{}: {problem}", path.display())),
            Err(error) => problems.push(format!("{}: {error}", path.display())),
        }
    }
    problems
}

/// Finds the companions of a trace, each with its suffix after the name of the trace, without
/// `.gz`. If a companion exists plain and compressed, the plain file is taken.
fn companions(trace: &Path) -> Vec<(PathBuf, String)> {
    let trace = plain(trace);
    let entries = std::fs::read_dir(folder_of(&trace));
    let entries = entries.into_iter().flatten().flatten();
    let Some(name) = trace.file_name() else {
        return Vec::new();
    };
    let mut found: Vec<(String, PathBuf)> = entries
        .map(|entry| entry.path())
        .filter_map(|path| Some((suffix(&path, name)?, path)))
        .collect();
    // The plain file stands before its compressed twin.
    found.sort();
    found.dedup_by(|(later, _), (first, _)| later == first);
    found
        .into_iter()
        .map(|(suffix, path)| (path, suffix))
        .collect()
}

/// Returns the trace, without `.gz`, of a file that is its companion, summary or autopsy by its
/// name.
pub fn trace_of(path: &Path) -> Option<PathBuf> {
    let path = plain(path);
    let name = path.file_name()?.to_str()?;
    let mut kinds = COMPANIONS.iter().chain(&OTHERS);
    let trace = kinds.find_map(|kind| Some(parted(name, kind)?.0))?;
    Some(path.with_file_name(trace))
}

/// Returns the suffix of a companion's name after the name of the trace and a dot.
fn suffix(path: &Path, trace: &OsStr) -> Option<String> {
    let path = plain(path);
    let name = path.file_name()?.to_string_lossy();
    let trace = trace.to_string_lossy();
    let of_trace = |kind: &&str| parted(&name, kind).filter(|(its, _)| *its == trace);
    let (_, suffix) = COMPANIONS.iter().find_map(of_trace)?;
    Some(suffix.to_string())
}

/// Parts a name like `run.trace.spool.1` into the trace's name and the suffix. The suffix is a kind
/// of companion, and a number if there are several.
fn parted<'a>(name: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    let (trace, number) = name.rsplit_once(&format!(".{kind}"))?;
    let is_one = match number.strip_prefix('.') {
        Some(number) => !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()),
        None => number.is_empty(),
    };
    is_one.then(|| (trace, &name[trace.len() + 1..]))
}

/// Unpacks a companion to a path, or puts a link there. Returns the damage in it.
fn brought(path: &Path, trace: &Path, to: &Path) -> Result<Option<String>> {
    let (file, meta) = open_companion(path, trace).context("cannot be read")?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        let most = most(&file);
        return copied(MultiGzDecoder::new(file), &mut File::create_new(to)?, most);
    }
    let folder = std::fs::metadata(to.parent().unwrap_or(to))?;
    if meta.uid() == folder.uid() {
        symlink(path.canonicalize()?, to)?;
        return Ok(None);
    }
    // The reader would not trust a link to a file of another user.
    let most = meta.len().saturating_add(1);
    copied(file, &mut File::create_new(to)?, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_companions() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "run.trace.gz",
            "run.trace.spool",
            "run.trace.spool.gz",
            "run.trace.spool.1.gz",
            "run.trace.symbols",
            "run.trace.spool.old",
            "run.trace.spoolx",
            "other.trace.spool",
        ] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = companions(&folder.path().join("run.trace.gz"));
        let names: Vec<_> = found
            .iter()
            .map(|(path, suffix)| (path.file_name().unwrap().to_str().unwrap(), &suffix[..]))
            .collect();
        assert_eq!(
            names,
            [
                ("run.trace.spool", "spool"),
                ("run.trace.spool.1.gz", "spool.1"),
                ("run.trace.symbols", "symbols"),
            ]
        );
    }
}
