//! The trace file: one definition of its layout, a writer and a reader.
//!
//! The file is mapped shared, so that the page cache keeps what was recorded whatever kills the
//! process. It says nothing of CUDA: what the events mean is in [`Event`] and in
//! `docs/trace-format.md`.

mod clock;
mod event;
pub mod layout;
mod process;
mod reader;
mod ring;
mod writer;

pub use clock::{Calibration, ClockSource, Pair, monotonic_ns};
pub use event::{Class, Cost, Event, Kind, Layer, flags};
pub use reader::{Error, Events, Header, Record, Trace};
pub use writer::{Writer, WriterOptions};

#[cfg(feature = "cli")]
pub(crate) use {reader::unescaped, writer::escape_into};
