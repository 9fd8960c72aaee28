//! Writes files that have their name only once they are whole.

use std::io::Write;
use std::path::Path;

use crate::error::{Result, failed};
use crate::whole::{self, Readers};

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
        return Err(failed!("{}: that is not the name of a file", place()));
    }
    let written = whole::write_whole(path, readers, write);
    written.map_err(|error| failed!("{}: {error}", place()))
}
