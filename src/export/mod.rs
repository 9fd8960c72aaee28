//! Recordings in the formats of others, one file for each.
//!
//! Who holds memory is told of one layer: of tensors where the recording has them, else of the device's
//! memory. What is wrong with a recording's end or beginning is made up for as far as it can be: blocks
//! whose allocation is lost are there from the first moment that is known of them.

pub(crate) mod command;
mod complete_events;
mod counters;
mod firefox;
mod folded;
mod frames;
mod json;
mod memory_viz;
mod parquet;
mod perfetto;
mod pickler;
mod pprof;
mod process;
mod profile;
mod proto;
mod rmm;
mod row;
mod speedscope;
#[cfg(test)]
pub(crate) mod told;
mod write;

pub use parquet::parquet;
pub(crate) use process::processes;
pub use profile::Measure;
pub use write::{Format, write};
