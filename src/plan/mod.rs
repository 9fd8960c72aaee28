//! A place for each block of a run that was recorded, knowing all lifetimes, for `GPUSHIM_POLICY=plan:FILE`.
//!
//! [`choose`] finds the period, the lives of its blocks and their offsets, and compares what the plans hold;
//! [`PlanReport`] says so.

pub(crate) mod command;
mod find;
mod lives;
mod place;
mod repeat;
mod text;

pub use find::{choose, repeats};
pub use place::{Budget, Effort};
#[cfg(test)]
pub(crate) use text::PlanReport;
