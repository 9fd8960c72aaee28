//! What changed between two runs: peaks, phases, iterations, and who held memory at the peak.

pub(crate) mod command;
mod compare;
pub use compare::DiffReport;
