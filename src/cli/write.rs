//! Writes files that have their name only once they are whole.

use std::io::Write;
use std::path::Path;

use crate::error::{Result, failed};
use crate::whole::{self, Readers};

/// Writes a file that gets its name when it is complete. Only its owner may read it.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    write_for(path, Readers::Owner, write)
}

/// Writes a file as [`write_whole`] does, with a choice of the users who may read it.
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
