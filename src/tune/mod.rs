//! `gpushim tune`: recommended settings of gpushim for runs like the recorded ones, in words.
//!
//! The search is of the crate `gpushim-simulate`.

pub(crate) mod command;
mod report;
mod sentence;
mod text;

pub use gpushim_simulate::tune::{Advice, Options, Recorded, tune};
pub use report::TuneReport;
