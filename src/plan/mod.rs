//! A place for each block of a run that was recorded, knowing all lifetimes, for `GPUSHIM_POLICY=plan:FILE`.
//!
//! [`plans`] finds the period, the lives of its blocks, and their places; [`PlanReport`] says what
//! the plan will hold.

pub(crate) mod command;
mod find;
mod lives;
mod place;
mod repeat;
mod text;

pub use find::{plans, repeats};
#[cfg(test)]
pub(crate) use text::PlanReport;
