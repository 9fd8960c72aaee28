//! Where `libgpushim.so` is.

use std::path::{Path, PathBuf};

use crate::error::{Result, failed};

const NAME: &str = "libgpushim.so";

/// The library that `run` preloads: `$GPUSHIM_LIBRARY`, or else next to the command, or in `../lib`, or in
/// `../lib/gpushim`, where packages put it.
pub fn find() -> Result<PathBuf> {
    if let Some(path) =
        std::env::var_os(gpushim_config::LIBRARY.name).filter(|path| !path.is_empty())
    {
        let path = PathBuf::from(path);
        return match path.canonicalize() {
            Ok(path) if path.is_file() => usable(path),
            _ => {
                return Err(failed!(
                    "find libgpushim.so: {}={} is no file; correct or unset it",
                    gpushim_config::LIBRARY.name,
                    path.display()
                ));
            }
        };
    }
    let command = std::env::current_exe()?;
    let beside = command.parent().unwrap_or(Path::new("."));
    let folders = [
        beside.to_path_buf(),
        beside.join("../lib"),
        beside.join("../lib/gpushim"),
    ];
    let found = folders.iter().find_map(|folder| {
        folder
            .join(NAME)
            .canonicalize()
            .ok()
            .filter(|path| path.is_file())
    });
    match found {
        Some(path) => usable(path),
        None => Err(failed!(
            "find libgpushim.so: it is neither in {} nor in ../lib or ../lib/gpushim beside it; set {}",
            beside.display(),
            gpushim_config::LIBRARY.name
        )),
    }
}

/// The loader splits `LD_PRELOAD` at spaces and colons and knows no way to escape them.
fn usable(path: PathBuf) -> Result<PathBuf> {
    let text = path.to_string_lossy();
    if text.contains([' ', ':', '\n', '\t']) {
        return Err(failed!(
            "preload {}: LD_PRELOAD cannot name a path with spaces or colons; move it",
            path.display()
        ));
    }
    Ok(path)
}
