//! From events to findings.
//!
//! Everything is computed by streaming over the events: memory grows with what is live, not with
//! the length of the trace.

mod account;
mod drops;
mod figures;
mod fragmentation;
mod glance;
mod growth;
mod held;
mod iterations;
mod leaks;
mod oom;
mod peak;
mod phases;
#[cfg(test)]
pub(crate) mod sample;
mod segments;
mod summary;
mod timeline;
mod walk;
mod weights;

pub use drops::{Cause, Drop, Drops, Fallen};
pub use figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
pub use fragmentation::{Asked, Fragmentation, Pin, Room, Segment};
pub use glance::Glance;
pub use growth::{Growth, Keeper};
pub use held::{Held, by_stack};
pub use iterations::{By, Iterations, Start, without_numbers};
pub use leaks::{Leaks, Left};
pub use oom::{Cache, Shortage, Why};
pub use peak::{Moment, Peak};
pub use phases::Phase;
pub use summary::summarize;
pub use timeline::{Curve, Curves, During, Run};
pub use walk::{Block, Focus, LiveAt, Visitor, walk};
pub use weights::{Weight, weights};
