//! The files that hold a module's symbols.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::Crc;

use super::sound::{self, Link};
use super::{Module, build_id, lines};
use gpushim_trace::regular::open_regular;

/// Folder in which distributions put debug files.
pub const SYSTEM_DEBUG_DIR: &str = "/usr/lib/debug";

/// Finds the files of this machine that belong to a module, the most detailed first. Files of
/// another build are left out. If the build cannot be checked, a file is used with a warning.
pub fn of(module: &Module, debug_dirs: &[PathBuf], problems: &mut Vec<String>) -> Vec<PathBuf> {
    let file = Path::new(&module.path);
    let id = &module.build_id;
    if id.is_empty() {
        return match build_id::of_file(file) {
            Ok(None) => {
                problems.push(format!(
                    "{} has no build id: its symbols may be those of another version",
                    file.display()
                ));
                let mut files = linked(file, debug_dirs, is_summed);
                files.push(file.to_path_buf());
                files
            }
            Ok(Some(_)) => {
                problems.push(changed(file));
                Vec::new()
            }
            Err(_) => Vec::new(),
        };
    }
    let mut files = debug_files(module, debug_dirs);
    match build_id::of_file(file) {
        Ok(Some(found)) if found == *id => {
            let of_build = |file: &Path, _: &Link| matches!(build_id::of_file(file), Ok(Some(found)) if found == *id);
            files.extend(linked(file, debug_dirs, of_build));
            files.push(file.to_path_buf());
        }
        Ok(_) => problems.push(changed(file)),
        // The process ran on another machine, or the file was removed: only `files` are left.
        Err(_) => {}
    }
    files
}

/// Finds the file that a module's `.gnu_debuglink` names: beside it, in `.debug` there, or in the
/// same folder below the directories for debug files.
fn linked(
    file: &Path,
    debug_dirs: &[PathBuf],
    is_it: impl Fn(&Path, &Link) -> bool,
) -> Vec<PathBuf> {
    let Some(link) = sound::debug_link(file) else {
        return Vec::new();
    };
    let file = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut places = vec![
        folder.join(&link.name),
        folder.join(".debug").join(&link.name),
    ];
    let system = PathBuf::from(SYSTEM_DEBUG_DIR);
    for dir in debug_dirs.iter().chain([&system]) {
        places.push(dir.join(&link.name));
        let within = folder.strip_prefix("/").unwrap_or(folder);
        places.push(dir.join(within).join(&link.name));
    }
    let found = places
        .into_iter()
        .find(|place| *place != file && is_it(place, &link));
    found.into_iter().collect()
}

/// Returns true if the content of a file has the checksum of a link.
fn is_summed(file: &Path, link: &Link) -> bool {
    let Ok((file, _)) = open_regular(file) else {
        return false;
    };
    let mut input = BufReader::with_capacity(1 << 20, file);
    let mut sum = Crc::new();
    loop {
        let Ok(part) = input.fill_buf() else {
            return false;
        };
        if part.is_empty() {
            return link.rest == sum.sum().to_le_bytes();
        }
        sum.update(part);
        let length = part.len();
        input.consume(length);
    }
}

fn changed(file: &Path) -> String {
    format!(
        "{} is not the file that was loaded, by its build id: not used",
        file.display()
    )
}

/// Finds the module's debug file, or a copy of the module, by its build id.
fn debug_files(module: &Module, debug_dirs: &[PathBuf]) -> Vec<PathBuf> {
    let hex: String = module.build_id.iter().map(|b| format!("{b:02x}")).collect();
    let (first, rest) = hex.split_at(2);
    let name = lines::base(&module.path);
    let named = debug_dirs.iter().flat_map(|dir| {
        let by_id = dir.join(".build-id").join(first);
        let names = [name.to_string(), format!("{name}.debug")];
        let in_dir = names
            .into_iter()
            .filter(|_| !name.is_empty())
            .map(|it| dir.join(it));
        [by_id.join(format!("{rest}.debug")), by_id.join(rest)]
            .into_iter()
            .chain(in_dir)
    });
    let system = Path::new(SYSTEM_DEBUG_DIR).join(format!(".build-id/{first}/{rest}.debug"));
    named
        .chain([system])
        .filter(
            |file| matches!(build_id::of_file(file), Ok(Some(found)) if found == module.build_id),
        )
        .collect()
}
