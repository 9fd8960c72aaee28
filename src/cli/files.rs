//! Trace files that a subcommand reads.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Result, failed};
use crate::recording::{is_snapshot, plain, trace_of};
use crate::whole::folder_of;
use gpushim_config::{Config, DEFAULT_PATTERN};

/// Returns the files of [`named`]; the recordings in a directory stand for it.
pub fn named_or_newest(files: &[PathBuf]) -> Result<Vec<PathBuf>> {
    Ok(named(files)?.iter().flat_map(|path| within(path)).collect())
}

/// Returns the named files and directories, without companions of other named files.
///
/// Without names the result is the newest file that matches `GPUSHIM_TRACE`, or else the newest trace
/// of the current directory.
pub fn named(files: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if !files.is_empty() {
        let traces: HashSet<PathBuf> = files.iter().map(|path| plain(path)).collect();
        let is_part = |path: &Path| trace_of(path).is_some_and(|trace| traces.contains(&trace));
        return Ok(files
            .iter()
            .filter(|path| !is_part(path))
            .cloned()
            .collect());
    }
    let pattern = Config::from_env().0.trace;
    let pattern = pattern.filter(|pattern| pattern != DEFAULT_PATTERN);
    let newest = newest(pattern.as_deref());
    newest.map(|path| vec![path]).ok_or_else(|| {
        let and = pattern.map_or(String::new(), |pattern| format!(" and matches {pattern}"));
        failed!(
            "find a trace: no file here ends with .trace{and}; name a file, or record one with `gpushim run PROGRAM`"
        )
    })
}

/// Returns the newest file that matches a pattern, or else the newest trace of the current directory.
fn newest(pattern: Option<&str>) -> Option<PathBuf> {
    let newest = |paths: Vec<PathBuf>| paths.into_iter().max_by_key(|path| age(path));
    pattern
        .and_then(|pattern| newest(matching(pattern)))
        .or_else(|| {
            let here = within(Path::new("."));
            let here = here
                .iter()
                .filter_map(|path| Some(path.file_name()?.into()));
            newest(here.collect())
        })
}

/// The traces of a directory, by their names, or else the snapshots; of anything else, and of a
/// directory without any, the path itself.
pub fn within(path: &Path) -> Vec<PathBuf> {
    let is_trace = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".trace") || name.ends_with(".trace.gz")
    };
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort_unstable();
    let of = |is: &dyn Fn(&Path) -> bool| -> Vec<PathBuf> {
        files.iter().filter(|path| is(path)).cloned().collect()
    };
    let traces = Some(of(&is_trace)).filter(|all| !all.is_empty());
    let snapshots = traces.unwrap_or_else(|| of(&is_snapshot));
    match snapshots.is_empty() {
        true => vec![path.to_path_buf()],
        false => snapshots,
    }
}

/// All files that a pattern of `GPUSHIM_TRACE` may have produced, for any process, rank and host.
pub fn matching(pattern: &str) -> Vec<PathBuf> {
    let pattern = Path::new(pattern);
    let Some(name) = pattern.file_name().and_then(|name| name.to_str()) else {
        return Vec::new();
    };
    let folder = PathBuf::from(folder_of(pattern).to_string_lossy().replace("%%", "%"));
    let parts = literals(name);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let fits = entry
                .file_name()
                .to_str()
                .is_some_and(|name| matches(name, &parts));
            // A path in the current directory is printed as its name alone.
            let path = if folder == Path::new(".") {
                entry.file_name().into()
            } else {
                entry.path()
            };
            (fits && entry.file_type().ok()?.is_file()).then_some(path)
        })
        .collect();
    paths.sort_unstable();
    paths
}

/// A path as one would type it here.
pub fn short(path: &Path) -> String {
    let current = std::env::current_dir().unwrap_or_default();
    let short = path.strip_prefix(&current).unwrap_or(path);
    short.display().to_string()
}

/// Creation time where the file system keeps it: the mapped file's modification time says little.
fn age(path: &Path) -> Option<SystemTime> {
    let meta = std::fs::metadata(path).ok()?;
    meta.created().or_else(|_| meta.modified()).ok()
}

/// Literal parts of a pattern's file name. Any text may stand between them.
///
/// A taken name gets a suffix before its extension. The extension is therefore a part of its own.
fn literals(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('%', Some('%')) => {
                letters.next();
                push(&mut parts, '%');
            }
            ('%', Some(_)) => {
                letters.next();
                parts.push(String::new());
            }
            (letter, _) => push(&mut parts, letter),
        }
    }
    if let Some(last) = parts.pop() {
        match last.rfind('.') {
            Some(dot) => parts.extend([last[..dot].to_string(), last[dot..].to_string()]),
            None => parts.extend([last, String::new()]),
        }
    }
    parts
}

fn push(parts: &mut [String], letter: char) {
    if let Some(last) = parts.last_mut() {
        last.push(letter);
    }
}

fn matches(name: &str, parts: &[String]) -> bool {
    let [first, middle @ .., last] = parts else {
        return false;
    };
    let Some(rest) = name
        .strip_prefix(first.as_str())
        .and_then(|rest| rest.strip_suffix(last.as_str()))
    else {
        return false;
    };
    let mut rest = rest;
    for part in middle.iter().filter(|part| !part.is_empty()) {
        let Some((_, after)) = rest.split_once(part.as_str()) else {
            return false;
        };
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_trace_is_not_read_on_its_own() {
        let names = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let all = names(&[
            "a/run.trace",
            "a/run.trace.spool",
            "a/run.trace.spool.1",
            "a/run.trace.symbols",
            "a/run.trace.symbols.gz",
            "b/run.trace.spool",
            "a/run.trace.spoolx",
        ]);
        let read = names(&["a/run.trace", "b/run.trace.spool", "a/run.trace.spoolx"]);
        assert_eq!(named_or_newest(&all).unwrap(), read);
        // Alone it is read, and its error explains what it is.
        let alone = names(&["a/run.trace.spool"]);
        assert_eq!(named_or_newest(&alone).unwrap(), alone);
    }

    #[test]
    fn names_that_a_pattern_may_have_produced() {
        let fits = |pattern: &str, name: &str| matches(name, &literals(pattern));
        assert!(fits("gpushim-%h-%p.trace", "gpushim-node7-123.trace"));
        assert!(fits("gpushim-%h-%p.trace", "gpushim-a-b-123-2.trace"));
        assert!(!fits("gpushim-%h-%p.trace", "gpushim-node7.trace"));
        assert!(!fits("gpushim-%h-%p.trace", "other-node7-123.trace"));
        assert!(!fits("gpushim-%h-%p.trace", "gpushim-node7-123.trace.gz"));
        assert!(fits("run.trace", "run.trace"));
        assert!(fits("run.trace", "run-1.trace"));
        assert!(fits("100%%-%p", "100%-7"));
        assert!(!fits("%p.a.b", "1.a"));
    }
}
