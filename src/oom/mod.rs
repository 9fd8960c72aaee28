//! Each request that ran out of memory: its size, the free memory, the cause, the holders of the
//! rest, and the remedies.
//!
//! [`Shortages`] finds the requests. `Situation` has the figures of the moment, and [`Cause`] is
//! the conclusion. `Fits` has the allocators and memory that would have served it. [`OomReport`] is
//! the text. `Brief` is the last request in a few lines, and `autopsy` writes them while the
//! process still runs.

mod advice;
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
