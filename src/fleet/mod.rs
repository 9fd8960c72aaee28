//! Summarises a job of hundreds of ranks, and finds ranks that are unlike the others.
//!
//! * [`RankSummary`] has the figures of one rank. `make` builds it from a recording, and `beside`
//!   reads it from the trace.
//! * `gather` reads the summaries of a job.
//! * `judge` finds the outliers. Its `roles` separate ranks with a role from exceptions.
//! * `open` reads the traces of the outliers.
//! * [`Fleet`](job::Fleet) is the result; `text` and `page` show it.

mod beside;
pub(crate) mod command;
mod gather;
mod job;
mod judge;
mod make;
mod open;
mod outlier;
mod page;
mod roles;
pub(crate) mod summary;
mod text;

pub(crate) use beside::{attachment, read as read_summary, read_attached};
pub(crate) use gather::{Place, each, find, read};
#[cfg(test)]
pub(crate) use job::Fleet;
pub use summary::RankSummary;
