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
#[cfg(feature = "spool")]
pub mod spool;
mod tail;
mod timeline;
mod upkeep;
mod writer;

pub use clock::{Calibration, ClockSource, Pair, monotonic_ns};
pub use event::{Class, Cost, Event, Kind, Layer, flags};
pub use reader::{Error, Events, Header, Record, Trace};
pub use tail::{Missed, Tail, Tailed};
pub use timeline::{Current, DeviceTimeline, Series, Span, Timeline};
pub use upkeep::Upkeep;
pub use writer::{Writer, WriterOptions};
