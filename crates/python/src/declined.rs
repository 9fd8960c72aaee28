//! Interpreters whose frames are not read.

use std::fmt;

/// Why an interpreter's frames are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// A version whose frames are not known: 3 and this.
    Version(u8),
    /// A build without a GIL, where other threads change what a walk reads.
    FreeThreaded,
    /// Its frames are not where those of its version are.
    Layout,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::Version(minor) => {
                write!(
                    f,
                    "frames of Python 3.{minor} are not known, those of 3.8 to 3.14 are"
                )
            }
            Declined::FreeThreaded => f.write_str("Python without a GIL is not supported"),
            Declined::Layout => f.write_str(
                "this build of Python keeps its frames elsewhere than builds of its version do",
            ),
        }
    }
}
