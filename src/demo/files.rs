//! Files of the demo: the simulated driver and the sample program, beside the library, and a Python.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cli::library;
use crate::error::{Result, failed};

/// Folder beside `libgpushim.so` with the files of the demo.
const FOLDER: &str = "demo";
const SAMPLE_PROGRAM: &str = "situations.py";
const SIMULATED_DRIVER: &str = "libcuda.so.1";

/// Finds the folder with the simulated driver, and the sample program in it.
///
/// # Errors
/// The library, the driver or the program is missing.
pub fn find() -> Result<(PathBuf, PathBuf)> {
    let library = library::find()?;
    let folder = library.with_file_name(FOLDER);
    let program = folder.join(SAMPLE_PROGRAM);
    match [SIMULATED_DRIVER, SAMPLE_PROGRAM]
        .iter()
        .find(|name| !folder.join(name).is_file())
    {
        None => Ok((folder, program)),
        Some(missing) => Err(failed!(
            "find the demo's {missing}: it is not in {}; the wheel and the other packages have it, and in a clone \
             scripts/demo builds it",
            folder.display()
        )),
    }
}

/// Finds the Python of the command's own environment, or else that of the path.
///
/// # Errors
/// There is no Python.
pub fn python() -> Result<PathBuf> {
    let command = std::env::current_exe().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = command.parent().map(Path::to_path_buf);
    let folders = folders.into_iter().chain(std::env::split_paths(&path));
    folders
        .flat_map(|folder| ["python3", "python"].map(|name| folder.join(name)))
        .find(|python| python.is_file())
        .ok_or_else(|| {
            failed!(
                "run the demo: it needs Python 3.8 or newer, and there is no python3 on the PATH"
            )
        })
}

/// A word as a shell takes it.
pub fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-=+:,@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_a_word_as_it_is() {
        assert_eq!(
            quoted("/opt/venv-1/bin/python3".as_ref()),
            "/opt/venv-1/bin/python3"
        );
        assert_eq!(quoted("it's here".as_ref()), r"'it'\''s here'");
        assert_eq!(quoted("".as_ref()), "''");
    }
}
