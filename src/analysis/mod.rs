//! From events to findings.
//!
//! Everything is computed by streaming over the events: memory grows with what is live, not with
//! the length of the trace.

mod account;
mod figures;
mod summary;

pub use figures::{
    Classes, DeviceFigures, Gauge, OutOfMemory, SizeGroup, Sources, Summary, TensorFigures,
};
pub use summary::summarize;
