//! From events to findings.
//!
//! Everything is computed by streaming over the events: memory grows with what is live, not with
//! the length of the trace.

mod account;
mod composition;
mod drops;
mod figures;
mod follow;
mod fragmentation;
mod glance;
mod growth;
mod held;
mod iterations;
mod journal;
mod leaks;
mod oom;
mod overview;
mod peak;
mod phases;
#[cfg(test)]
pub(crate) mod sample;
mod segments;
mod summary;
mod timeline;
mod walk;
mod weights;

pub use composition::{Category, Part, composition};
pub use drops::{Cause, Drop, Drops, Fallen};
pub use figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
pub use follow::{Follow, Followed};
pub use fragmentation::{Asked, Fragmentation, Pin, Room, Segment};
pub use glance::Glance;
pub use growth::{Growth, Keeper};
pub use held::{Held, by_stack};
pub use iterations::{By, Iterations, Locator, Search, Start, without_numbers};
pub use journal::Journal;
pub use leaks::{Leaks, Left};
pub use oom::{Cache, Shortage, Shortages, Why};
pub use overview::{Overview, Told};
pub use peak::{Moment, Peak};
pub use phases::Phase;
pub use summary::{Books, PeakOf, summarize};
pub use timeline::{Curve, Curves, During, Run};
pub use walk::{Block, Focus, LiveAt, Visitor, Walker, walk};
pub use weights::{Weight, weights};
