//! How memory went over the run, as curves with the least and the most of each stretch of time, and its phases.
//!
//! [`Run`] finds the curves; [`TimelineReport`] shows them: `plot` draws in characters, `svg` a picture.
//! `gpushim replay` draws with the same.

pub(crate) mod command;
mod find;
mod plot;
mod svg;
mod text;

pub use find::Curve;
pub(crate) use find::curve;
pub(crate) use plot::{Plot, columns, legend};
pub(crate) use svg::{LINE, document, panel};
#[cfg(test)]
pub(crate) use text::TimelineReport;
