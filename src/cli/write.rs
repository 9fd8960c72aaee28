//! Opens recordings all at once, and writes files.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use crate::cli::outcome::Outcome;
use crate::cli::terminal::{complain, say_problems};
use crate::recording::{self, Recording};
use crate::whole::{self, Readers};

/// Opens what can be opened, and says what is wrong with it and with the rest.
pub fn open(paths: &[PathBuf]) -> (Vec<Box<dyn Recording>>, Outcome) {
    let mut outcome = Outcome::Fine;
    let mut recordings = Vec::new();
    for path in paths {
        match recording::open(path) {
            Ok(recording) => {
                say_problems(&*recording);
                recordings.push(recording);
            }
            Err(error) => {
                complain(&error);
                outcome = Outcome::Failed;
            }
        }
    }
    (recordings, outcome)
}

/// Writes a file that has its name only once it is whole, and that only its owner may read.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    write_for(path, Readers::Owner, write)
}

/// As [`write_whole`], for others, too.
pub fn write_for(
    path: &Path,
    readers: Readers,
    write: impl FnOnce(&mut dyn Write) -> Result<()>,
) -> Result<()> {
    let place = || format!("write {}", path.display());
    if path.file_name().is_none() {
        return Err(anyhow!("{}: it names no file", place()));
    }
    let written = whole::write_whole(path, readers, write);
    written
        .with_context(place)
        .map_err(|error| anyhow!("{error:#}"))
}
