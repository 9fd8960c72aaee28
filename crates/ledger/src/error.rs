//! The error of all functions of this crate.

use std::{fmt, io};

/// A failure, in words that complete "failed to …".
#[derive(Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }

    /// Describes an error of the system; `what` completes "failed to …".
    pub(crate) fn of_system(what: impl fmt::Display, error: &io::Error) -> Error {
        Error(format!("{what}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
