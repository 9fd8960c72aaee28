//! `gpushim check`: limits and baselines for GPU memory in CI.
//!
//! [`Figures`](figures::Figures) are what a recording comes to; a [`Rule`](rule::Rule) compares one of them with a limit or
//! with a [`baseline`](baseline::Baseline) and gives a result; `output` prints the results.

mod baseline;
pub(crate) mod command;
mod figures;
mod junit;
mod outcome;
mod output;
mod rule;
#[cfg(test)]
pub(crate) use output::Checked;
