//! The one error type of the crate.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Why something could not be done with a trace. Its text completes "failed to …": what was to be done, the file, and
/// after a colon what stood in the way.
#[derive(Debug)]
pub struct Error {
    what: &'static str,
    path: PathBuf,
    why: String,
    source: Option<io::Error>,
}

impl Error {
    /// By what was found in a file.
    pub(crate) fn new(what: &'static str, path: &Path, why: impl Into<String>) -> Error {
        Error {
            what,
            path: path.to_path_buf(),
            why: why.into(),
            source: None,
        }
    }

    /// By what the system said, after a text that ends with a colon, or is empty.
    pub(crate) fn io(what: &'static str, path: &Path, why: &str, source: io::Error) -> Error {
        Error {
            source: Some(source),
            ..Error::new(what, path, why)
        }
    }

    /// The file.
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
