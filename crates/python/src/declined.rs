//! Interpreters whose frames are not read.

use std::fmt;
use std::ops::RangeInclusive;

/// Minor versions of Python 3 whose frames are read.
pub const VERSIONS: RangeInclusive<u8> = 8..=14;

/// Reason why an interpreter's frames are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// A version with unknown frames: 3 and this.
    Version(u8),
    /// A build without a GIL, where other threads change what a walk reads.
    FreeThreaded,
    /// Its frames are not at the offsets of its version.
    Layout,
}

impl Declined {
    /// Returns the reason why the frames of every build of Python 3.`minor` are declined, with a
    /// GIL or without one. `None` if they are read.
    pub fn build(minor: u8, is_free_threaded: bool) -> Option<Declined> {
        if !VERSIONS.contains(&minor) {
            Some(Declined::Version(minor))
        } else {
            is_free_threaded.then_some(Declined::FreeThreaded)
        }
    }
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::Version(minor) => {
                let (first, last) = VERSIONS.into_inner();
                write!(
                    f,
                    "frames of Python 3.{minor} are not known, those of 3.{first} to 3.{last} are"
                )
            }
            Declined::FreeThreaded => f.write_str("Python without a GIL is not supported"),
            Declined::Layout => f.write_str(
                "this build of Python keeps its frames elsewhere than builds of its version do",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn versions_without_published_offsets_have_a_layout() {
        for minor in 0..=12 {
            assert_eq!(
                Layout::of(minor).is_some(),
                Declined::build(minor, false).is_none(),
                "3.{minor}"
            );
        }
        assert_eq!(Declined::build(15, true), Some(Declined::Version(15)));
        assert_eq!(Declined::build(14, true), Some(Declined::FreeThreaded));
    }
}
