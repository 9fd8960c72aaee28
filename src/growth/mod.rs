//! Whether memory grows with each iteration, by how much, who keeps it, and how long it will last.
//!
//! [`Growth`] is found by what is live at the beginning of each iteration; [`GrowthReport`] says it in sentences.

pub(crate) mod command;
mod find;
mod text;

pub use find::{Growth, Keeper};
pub use text::GrowthReport;
