//! Recordings in the formats of other programs, one file for each format.
//!
//! Holders of memory are blocks of one layer: tensors if the recording has any, else device memory.
//!
//! Lost events at the beginning and the end are reconstructed as far as possible. A block without a
//! recorded allocation is live from the first moment at which it is known.

pub(crate) mod command;
mod complete_events;
mod counters;
mod dataset;
#[cfg(test)]
pub(crate) mod figures;
mod firefox;
mod folded;
mod frames;
mod json;
mod memory_viz;
mod perfetto;
mod pickler;
mod pprof;
mod process;
mod profile;
mod proto;
mod rmm;
mod row;
mod write;

pub use dataset::{Dataset, parquet};
pub(crate) use process::processes;
pub use profile::Measure;
pub use write::{Format, write};
