//! Each request that ran out of memory: its size, the free memory, why it did not fit, the stacks that held the rest,
//! and what would have helped.
//!
//! [`Shortages`] finds the requests, `Situation` is what is known of the moment of each and [`Cause`]
//! what follows from it, `Fits` what would have met it, [`OomReport`] is the text. `Brief` is the last
//! request in a few lines, and `autopsy` says them while the process still runs.

mod autopsy;
mod brief;
mod cause;
pub mod command;
mod explain;
mod figures;
mod find;
mod fits;
mod layout;
mod leak;
mod replayed;
mod search;
mod situation;
#[cfg(test)]
mod tests;
mod text;
mod until;
mod words;

#[cfg(test)]
pub use cause::Cause;
pub use find::{Shortage, Shortages};
pub use text::OomReport;
