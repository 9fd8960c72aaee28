//! Memory that each announced range (NVTX) and each iteration allocates, keeps and frees.
//!
//! [`Phase`] finds it, [`PhasesReport`] is the table.

mod find;
mod text;

pub use find::{ITERATION, Phase};
pub use text::PhasesReport;
