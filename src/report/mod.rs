//! What a run did with GPU memory, on one screen.
//!
//! [`Overview`] computes all of it in two passes over the events: `summary` keeps the books and makes the
//! [`figures`](Summary), and the findings of growth, leaks, out-of-memory and peak are those of their features.
//! [`Report`] is what is said of it, with the verdicts; `text` is the screen, and `job` compares the ranks of a job.

mod build;
pub(crate) mod command;
mod figures;
mod job;
mod overview;
mod summary;
mod text;
mod verdict;

pub use build::Report;
pub use figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
pub use overview::{Overview, Told, summarize};
pub use summary::{Books, PeakOf};
