//! Compares two runs: peaks, phases, iterations, and the stacks that held memory at the peak.

pub(crate) mod command;
mod compare;
#[cfg(test)]
pub(crate) use compare::DiffReport;
