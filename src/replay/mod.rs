//! `gpushim replay`: the table of other allocators on the requests of a recorded run.
//!
//! The replays are of the crate `gpushim-simulate`.

pub(crate) mod command;
mod steps;
mod text;

#[cfg(test)]
pub(crate) use gpushim_simulate::replay::planted;
pub use gpushim_simulate::replay::{Policy, ReplayDevice, run};
pub use text::ReplayReport;
