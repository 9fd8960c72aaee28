//! The trace file: one definition of its layout, a writer and a reader.
//!
//! The file is mapped shared, so that the page cache keeps what was recorded whatever kills the
//! process. It says nothing of CUDA: what the events mean is in [`Event`] and in
//! `docs/trace-format.md`.

pub mod background;
mod clock;
mod effect;
mod event;
#[cfg(all(test, not(miri)))]
mod explore;
mod guard;
mod identity;
mod index;
mod jit;
pub mod layout;
mod live;
mod modules;
pub mod per_thread;
pub mod perf_map;
mod process;
mod reader;
pub mod regular;
mod ring;
mod space;
pub mod spool;
mod stacks;
mod strings;
mod tail;
mod timeline;
mod totals;
mod upkeep;
mod writer;

pub use clock::{Calibration, ClockSource, Pair, monotonic_ns};
pub use effect::{Bytes, Effect};
pub use event::{Class, Cost, Event, Kind, Layer, flags};
pub use live::Removed;
pub use modules::{BuildId, Module};
pub use process::Facts;
pub use reader::{
    Cut, Error, Events, Header, LiveBlock, LiveTable, Record, Stack, Sums, Totals, Trace, lost,
};
pub use stacks::StackNode;
pub use tail::{Missed, Tail, Tailed};
pub use timeline::{DeviceTimeline, Series, Span, Timeline};
pub use upkeep::{Held, Upkeep};
pub use writer::{Condition, Writer, WriterOptions};

pub use {reader::unescaped, writer::escape_into};
