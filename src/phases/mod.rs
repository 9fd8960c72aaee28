//! What each range that the program announced (NVTX), and each iteration, allocates, keeps and frees.
//!
//! [`Phase`] finds it, [`PhasesReport`] is the table.

pub(crate) mod command;
mod find;
mod text;

pub use find::Phase;
pub(crate) use find::busiest;
pub use text::PhasesReport;
