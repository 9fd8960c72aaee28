//! Report of a run's GPU memory on one screen.
//!
//! [`Overview`] computes the data in two passes over the events. `summary` makes the
//! [`figures`](Summary). The features for growth, out-of-memory and peaks make their findings, and
//! [`findings`] orders them. [`Report`] is the result, and `text` is the screen. `command` also
//! answers for the ranks of a job, with the judge of `crate::fleet`.

mod build;
pub(crate) mod command;
mod complete;
mod figures;
mod findings;
mod overview;
mod summary;
mod text;

pub use build::{HeldAtPeak, MemoryOfDevice, Report};
pub use figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
pub use findings::{Finding, Findings, Kind as FindingKind, Topic, Untold};
pub use overview::{LayerFindings, Overview, figures_of, summarize};
pub use summary::{PeakOf, SummaryBuilder};
