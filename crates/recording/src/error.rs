//! Error type of the command and of its crates.

use std::error::Error as Source;
use std::{fmt, io};

/// Result of a fallible function of the command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Description of a failure. Its text completes "failed to …".
///
/// The text names the task and the place, and the cause after a colon.
#[derive(Debug)]
pub struct Error {
    what: Option<String>,
    source: Option<Box<dyn Source + Send + Sync>>,
}

impl Error {
    /// Error with this text alone.
    pub fn new(what: impl Into<String>) -> Error {
        Error {
            what: Some(what.into()),
            source: None,
        }
    }

    /// Error of another crate, without added text.
    pub fn of(source: impl Into<Box<dyn Source + Send + Sync>>) -> Error {
        Error {
            what: None,
            source: Some(source.into()),
        }
    }

    /// True if the reader of the output has closed its end.
    pub fn is_broken_pipe(&self) -> bool {
        let mut source = self.source();
        while let Some(error) = source {
            let kind = match error.downcast_ref::<io::Error>() {
                Some(error) => Some(error.kind()),
                None => error
                    .downcast_ref::<serde_json::Error>()
                    .and_then(serde_json::Error::io_error_kind),
            };
            if kind == Some(io::ErrorKind::BrokenPipe) {
                return true;
            }
            source = error.source();
        }
        false
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.what, &self.source) {
            (Some(what), Some(source)) => write!(f, "{what}: {source}"),
            (Some(what), None) => f.write_str(what),
            (None, Some(source)) => source.fmt(f),
            (None, None) => Ok(()),
        }
    }
}

impl Source for Error {
    fn source(&self) -> Option<&(dyn Source + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Implements `From` for errors of other crates. Their message stays unchanged.
macro_rules! from {
    ($($of:ty),*) => {
        $(impl From<$of> for Error {
            fn from(error: $of) -> Error {
                Error::of(error)
            }
        })*
    };
}

from!(
    io::Error,
    fmt::Error,
    std::num::TryFromIntError,
    serde_json::Error,
    gpushim_trace::Error
);

/// Adds the failed task to an error.
pub trait Context<T> {
    /// With a text in front of the error's own, as in "write FILE".
    ///
    /// # Errors
    /// The same error, with that text.
    fn context(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<Box<dyn Source + Send + Sync>>> Context<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error {
            what: Some(what.into()),
            source: Some(error.into()),
        })
    }
}

/// Makes an [`Error`](crate::error::Error) of a text, formatted as by [`format!`].
#[macro_export]
macro_rules! failed {
    ($($text:tt)*) => {
        $crate::error::Error::new(format!($($text)*))
    };
}
pub use failed;
