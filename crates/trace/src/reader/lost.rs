//! Files that lost bytes while they were read: results from them are incomplete.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Files that were noted, at most [`NOTED_MAX`].
static NOTED: Mutex<Vec<Lost>> = Mutex::new(Vec::new());
const NOTED_MAX: usize = 100;

/// Place of the loss in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It ends after this many bytes, before its former end.
    End(u64),
    /// The byte at this offset cannot be read.
    Byte(u64),
}

/// File that lost bytes while it was read. Its message completes "failed to …".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    path: PathBuf,
    place: Place,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "read {}: ", self.path.display())?;
        match self.place {
            Place::End(bytes) => write!(f, "it was truncated to {bytes} bytes")?,
            Place::Byte(at) => write!(f, "byte {at} was lost")?,
        }
        f.write_str(" while it was read; what was made of it is incomplete")
    }
}

impl std::error::Error for Lost {}

/// Notes that a file lost bytes, once for each file.
pub(super) fn note(path: &Path, place: Place) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.len() < NOTED_MAX && noted.iter().all(|lost| lost.path != path) {
        noted.push(Lost {
            path: path.to_path_buf(),
            place,
        });
    }
}

/// Returns the files that lost bytes while this process read them, except files that are still
/// open.
pub fn all() -> Vec<Lost> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// True if a file that is or was open has lost bytes.
pub fn any() -> bool {
    crate::guard::read_lost() || !all().is_empty()
}
