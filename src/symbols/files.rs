//! The files that hold a module's symbols.

use std::path::{Path, PathBuf};

use super::{Module, build_id, lines};

/// Where distributions put debug files.
pub const SYSTEM_DEBUG_DIR: &str = "/usr/lib/debug";

/// The files of this machine that belong to a module, the most telling first. Those that cannot be
/// trusted are left out, or used with a warning where there is no way to tell.
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
                vec![file.to_path_buf()]
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
        Ok(Some(found)) if found == *id => files.push(file.to_path_buf()),
        Ok(_) => problems.push(changed(file)),
        // Another machine, or it was removed: what `files` has must do.
        Err(_) => {}
    }
    files
}

fn changed(file: &Path) -> String {
    format!(
        "{} is not the file that was loaded, by its build id: not used",
        file.display()
    )
}

/// The module's debug file, or a copy of the module, by its build id.
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
