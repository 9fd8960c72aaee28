//! Search for `libgpushim.so`.

use std::path::{Path, PathBuf};

use crate::error::{Result, failed};

const NAME: &str = "libgpushim.so";
/// The Python package that carries the library, and where in it.
const PACKAGE: &str = "gpushim";
const WITHIN_PACKAGE: [&str; 3] = ["", "lib", "bin"];
/// Folders in which packages of distributions install the library.
const SYSTEM: [&str; 3] = [
    "/usr/lib/gpushim",
    "/usr/lib64/gpushim",
    "/usr/local/lib/gpushim",
];

/// Finds the library that `run` preloads.
///
/// `$GPUSHIM_LIBRARY` is used if it is set. Otherwise the first that exists is used:
///
/// - next to the command,
/// - in `../lib`,
/// - in the Python package that was installed with the command,
/// - in the folders of [`SYSTEM`].
///
/// # Errors
/// There is no library, or its path cannot be passed to the loader.
pub fn find() -> Result<PathBuf> {
    if let Some(path) =
        std::env::var_os(gpushim_config::LIBRARY.name).filter(|path| !path.is_empty())
    {
        let path = PathBuf::from(path);
        return match path.canonicalize() {
            Ok(path) if path.is_file() => usable(path),
            _ => {
                return Err(failed!(
                    "find libgpushim.so: {}={} is not a file; correct or unset it",
                    gpushim_config::LIBRARY.name,
                    path.display()
                ));
            }
        };
    }
    let command = std::env::current_exe()?;
    let beside = command.parent().unwrap_or(Path::new("."));
    let found = places(beside)
        .into_iter()
        .find_map(|place| place.canonicalize().ok().filter(|path| path.is_file()));
    match found {
        Some(path) => usable(path),
        None => Err(failed!(
            "find libgpushim.so: it is not in {0}, {0}/../lib, the Python package gpushim or {1}; set {2} to its path",
            beside.display(),
            SYSTEM[0],
            gpushim_config::LIBRARY.name
        )),
    }
}

/// All places in which it may be, for a command in this folder, the best first.
fn places(beside: &Path) -> Vec<PathBuf> {
    let up = beside.join("..");
    let mut places = vec![
        beside.join(NAME),
        up.join("lib").join(NAME),
        // The command may itself be in a folder of the Python package.
        up.join(NAME),
        up.join("lib").join(PACKAGE).join(NAME),
    ];
    for lib in ["lib", "lib64"] {
        places.extend(packages(&up.join(lib)));
    }
    places.extend(SYSTEM.iter().map(|folder| Path::new(folder).join(NAME)));
    places
}

/// Folders of the Python package below a `lib`, one for each version of Python:
/// `lib/python3.12/site-packages/gpushim`.
fn packages(lib: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(lib).into_iter().flatten().flatten();
    let is_python = |name: &str| name.starts_with("python3");
    let mut versions: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_python))
        .map(|entry| entry.path())
        .collect();
    versions.sort_unstable();
    let in_version = |version: &PathBuf| {
        let version = version.clone();
        ["site-packages", "dist-packages"].map(|packages| version.join(packages).join(PACKAGE))
    };
    versions
        .iter()
        .flat_map(in_version)
        .flat_map(|package| WITHIN_PACKAGE.map(|folder| package.join(folder).join(NAME)))
        .collect()
}

/// The loader splits `LD_PRELOAD` at spaces and colons, and has no escape for them.
fn usable(path: PathBuf) -> Result<PathBuf> {
    let text = path.to_string_lossy();
    if text.contains([' ', ':', '\n', '\t']) {
        return Err(failed!(
            "preload {}: the loader cannot take a path with spaces or colons; move the library, or link to it",
            path.display()
        ));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_environment_has_it_in_the_package() {
        let root = tempfile::tempdir().expect("a folder");
        let bin = root.path().join("bin");
        let package = root.path().join("lib/python3.11/site-packages/gpushim/lib");
        for folder in [&bin, &package] {
            std::fs::create_dir_all(folder).expect("made");
        }
        let found = || places(&bin).into_iter().find(|place| place.is_file());
        assert_eq!(found(), None);
        std::fs::write(package.join(NAME), "").expect("written");
        let path = found()
            .expect("in the package")
            .canonicalize()
            .expect("there");
        assert_eq!(path, package.join(NAME).canonicalize().expect("there"));
        std::fs::write(bin.join(NAME), "").expect("written");
        assert_eq!(
            found(),
            Some(bin.join(NAME)),
            "the one beside it comes first"
        );
    }
}
