//! Compares two runs: peaks, phases, iterations, and the stacks that held memory at the peak.

pub(crate) mod command;
mod figures;
mod report;
mod text;

#[cfg(test)]
pub(crate) use report::DiffReport;
