//! A moment of a run to examine.

/// A moment of a run to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The first time at which most was live.
    Peak,
    /// Nanoseconds after the start.
    Ns(u64),
    /// The end, after the last event.
    End,
}
