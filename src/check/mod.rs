//! `gpushim check`: limits and baselines for GPU memory in CI.
//!
//! [`figures`](figures::figures) are computed from a report. A [`Rule`](rule::Rule) compares one of
//! them with a limit or a [`baseline`](baseline::Baseline) and returns a result. `output` prints the
//! results.

mod baseline;
pub(crate) mod command;
mod figures;
mod junit;
mod outcome;
mod output;
mod rule;
#[cfg(test)]
pub(crate) use output::Checked;
