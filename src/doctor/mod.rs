//! Checks what keeps gpushim from working on this machine, or with a trace what was hooked in that run.
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
