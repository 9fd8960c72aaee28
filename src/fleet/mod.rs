//! Compares the ranks of a job, from a few to thousands, and finds those that are unlike the others.
//!
//! * [`RankSummary`] has the figures of one rank. `make` builds it from a recording, and `beside`
//!   reads it from the trace.
//! * `sorted` tells ranks of jobs from separate runs, and `gather` reads their summaries.
//! * `judge` finds the outliers. Its `roles` separate ranks with a role from exceptions.
//! * `open` reads the traces of the outliers.
//! * [`Fleet`] is the result, and `text` shows it.
//! * `siblings` judges one rank among those beside it.

mod beside;
mod figures;
mod gather;
mod job;
mod judge;
mod make;
mod open;
mod outlier;
mod roles;
pub(crate) mod siblings;
mod sorted;
pub(crate) mod summary;
mod text;

pub(crate) use beside::{attachment, read as read_summary, read_attached};
#[cfg(test)]
pub(crate) use gather::Member;
pub(crate) use gather::{Gathered, Place, each, places, read};
pub(crate) use job::{Fleet, RankRow};
pub(crate) use sorted::Sorted;
pub use summary::RankSummary;
