//! Each request that could not be met: what was asked for, what there was, why it did not fit, who held the rest,
//! and what would have helped.
//!
//! [`Shortages`] finds them, [`OomReport`] says it in sentences.

pub(crate) mod command;
mod find;
mod text;

pub use find::{Cache, Shortage, Shortages, Why};
pub use text::OomReport;
