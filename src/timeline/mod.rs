//! Memory over the run, as curves with the least and the most of each stretch of time, and its
//! phases.
//!
//! `find` has the curves, `text` their answer, and `plot` draws them in characters.

pub(crate) mod command;
mod find;
mod plot;
mod text;

pub(crate) use find::curve;
#[cfg(test)]
pub(crate) use text::TimelineReport;
