//! Code that the output of all features shares.
//!
//! - [`answer`] is the result of a subcommand and its subject.
//! - [`envelope`] is its JSON.
//! - [`table`] aligns columns.
//! - [`units`] formats numbers for people.
//! - [`style`] and [`wrap`] fit text to a terminal.
//! - [`escape`] makes text from files safe to show.

pub mod answer;
pub mod envelope;
pub mod escape;
pub mod holder;
pub mod numbered;
pub mod owned;
pub mod style;
pub mod table;
pub mod wrap;

pub use gpushim_recording::units;
