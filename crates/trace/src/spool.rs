//! All events of a run, compressed, behind the mapped part of the trace: the mode `full`.
//!
//! A thread of the spool follows the ring and writes its events, frame by frame, before they are
//! overwritten. The recording threads wait for nothing. Events that the disk does not take, or that
//! are overwritten before, are counted. `docs/trace-format.md` defines the frames.

mod area;
mod columns;
mod frame;
mod scan;
mod thread;

pub use area::SpoolLimits;
pub(crate) use frame::{Budget, Span};
pub(crate) use scan::scan;
pub use thread::{SpoolOptions, SpoolStatus, Spooler, Tell};

/// Largest number of events of a frame.
pub(crate) const FRAME_EVENTS: usize = 32 << 10;

#[cfg(test)]
mod tests;
