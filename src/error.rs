//! The one error type of the command.

use std::error::Error as Source;
use std::{fmt, io};

/// What a fallible function of the command returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done. Its text completes "failed to …": what was to be done and where, and after a
/// colon what stood in the way.
#[derive(Debug)]
pub struct Error {
    what: Option<String>,
    source: Option<Box<dyn Source + Send + Sync>>,
}

impl Error {
    /// Of this text alone.
    pub fn new(what: impl Into<String>) -> Error {
        Error {
            what: Some(what.into()),
            source: None,
        }
    }

    /// Whether it is that the reader of what is written has gone.
    pub(crate) fn is_broken_pipe(&self) -> bool {
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

/// What other crates return, with nothing to add.
macro_rules! from {
    ($($of:ty),*) => {
        $(impl From<$of> for Error {
            fn from(error: $of) -> Error {
                Error {
                    what: None,
                    source: Some(Box::new(error)),
                }
            }
        })*
    };
}

from!(
    io::Error,
    fmt::Error,
    std::num::TryFromIntError,
    serde_json::Error,
    parquet::errors::ParquetError,
    gpushim_trace::Error
);

/// Says what was to be done when something failed.
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

/// An [`Error`] of a text, formatted as by [`format!`].
macro_rules! failed {
    ($($text:tt)*) => {
        $crate::error::Error::new(format!($($text)*))
    };
}
pub(crate) use failed;
