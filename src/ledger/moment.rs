//! A moment of a run that is looked at.

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// When most was live, the first time.
    Peak,
    /// Ns after the start.
    Ns(u64),
    /// After the last event.
    End,
}
