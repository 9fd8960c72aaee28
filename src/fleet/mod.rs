//! A job of hundreds of ranks: a summary beside each trace, and what they say together.
//!
//! [`RankSummary`] is what is kept of a rank, `make` takes it from a recording, and `beside` is the file. `gather` reads
//! those of a job, `judge` says which ranks are unlike the others, with `roles` to tell a role from an exception, and `open`
//! looks into the traces of these. [`Fleet`] is the answer, `text` and `page` show it.

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

pub(crate) use beside::{read as read_summary, write};
pub(crate) use gather::{Place, each, find, read};
#[cfg(test)]
pub(crate) use job::Fleet;
pub use summary::RankSummary;
