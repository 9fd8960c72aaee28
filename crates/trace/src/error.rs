//! Error type of the crate.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Error of an operation on a trace. Its text completes "failed to …". It has the operation, the
/// file, and after a colon the reason.
#[derive(Debug)]
pub struct Error {
    what: &'static str,
    path: PathBuf,
    why: String,
    source: Option<io::Error>,
}

impl Error {
    /// Returns an error with a reason found in a file.
    pub(crate) fn new(what: &'static str, path: &Path, why: impl Into<String>) -> Error {
        Error {
            what,
            path: path.to_path_buf(),
            why: why.into(),
            source: None,
        }
    }

    /// Returns an error of the system, after a text that ends with a colon, or is empty.
    pub(crate) fn io(what: &'static str, path: &Path, why: &str, source: io::Error) -> Error {
        Error {
            source: Some(source),
            ..Error::new(what, path, why)
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.what, self.path.display(), self.why)?;
        self.source.as_ref().map_or(Ok(()), |source| source.fmt(f))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
