//! Finds obstacles to gpushim on this machine, or, with a trace, lists the functions hooked in its
//! run.
//!
//! Each file is a group of checks.

mod check;
pub(crate) mod command;
mod limits;
mod machine;
mod preload;
mod python;
mod takeover;
mod trace;
