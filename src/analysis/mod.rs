//! From events to findings.
//!
//! Everything is computed by streaming over the events: memory grows with what is live, not with
//! the length of the trace.

mod account;
mod figures;
mod glance;
mod growth;
mod held;
mod iterations;
mod leaks;
mod oom;
mod peak;
mod phases;
#[cfg(test)]
mod sample;
mod summary;
mod walk;

pub use figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
pub use glance::Glance;
pub use growth::{Growth, Keeper};
pub use held::{Held, by_stack};
pub use iterations::{By, Iterations, Start, without_numbers};
pub use leaks::{Leaks, Left};
pub use oom::{Cache, Shortage, Why};
pub use peak::{Moment, Peak};
pub use phases::Phase;
pub use summary::summarize;
pub use walk::{Block, Focus, LiveAt, Visitor, walk};
