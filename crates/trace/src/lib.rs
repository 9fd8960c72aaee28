//! Trace file of gpushim: its layout, a writer and a reader.
//!
//! A trace records the GPU memory of one process:
//!
//! - each allocation and free, as an event of 64 bytes;
//! - the live blocks, and sums by device;
//! - call stacks, and facts about the process.
//!
//! The [`Writer`] maps the file shared, so the page cache keeps all records even if the process is
//! killed. Recording takes no lock and makes no system call. The newest events are kept in a ring.
//! A [`spool`] keeps all of them, compressed, behind the mapped part.
//!
//! [`Trace`] reads the file of a process in any state: running, ended or killed. The crate does not
//! depend on CUDA: [`Event`] and `docs/trace-format.md` define the meaning of the events.
//!
//! ```
//! use gpushim_trace::{Class, Event, Kind, Trace, Writer, WriterOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("run.trace");
//! let writer = Writer::create(&path, &WriterOptions::default())?;
//! let block = Event {
//!     device: 0,
//!     address: 0x7f00_0000_0000,
//!     size: 4096,
//!     ..Event::new(Kind::Alloc, Class::Device)
//! };
//! writer.record_alloc(&block);
//!
//! // By any process, at any time: while the writer runs or after it died.
//! let trace = Trace::open(&path)?;
//! for record in trace.events() {
//!     println!("{} ns: {} of {} bytes", record.ns, record.event.kind.name(), record.event.size);
//! }
//! assert_eq!(trace.recorded(), 1);
//! assert_eq!(trace.live().map(|live| live.blocks.len()), Some(1));
//! # Ok(())
//! # }
//! ```

pub mod attached;
pub mod background;
mod clock;
pub mod control;
mod effect;
mod error;
mod event;
#[cfg(all(test, not(miri)))]
mod explore;
pub mod fnv;
mod guard;
mod index;
mod jit;
mod kind;
mod late_fact;
pub mod layout;
pub mod leb128;
mod live;
mod modules;
mod owner;
pub mod per_thread;
pub mod perf_map;
mod process;
mod reader;
pub mod regular;
mod ring;
mod sites;
mod space;
pub mod sparse;
pub mod spool;
mod stacks;
mod streams;
mod strings;
mod tail;
mod text;
mod timeline;
mod timeline_follower;
mod totals;
mod writer;

pub use clock::{Calibration, ClockSource, Pair, monotonic_ns};
pub use effect::{Bytes, Effect};
pub use error::Error;
pub use event::{Class, Cost, Event, Layer, flags};
pub use kind::Kind;
pub use late_fact::add_fact;
pub use live::{Numbers, Removed};
pub use modules::{BuildId, Module};
pub use owner::{Kept, Occasion, OwnerWords, walk};
pub use process::Facts;
pub use reader::{
    Cut, Events, Header, LiveBlock, LiveTable, Moment, Record, Stack, Sums, Totals, Trace, lost,
};
pub use sites::Site;
pub use stacks::{Pushed, SITE, StackNode};
pub use streams::stream_fact;
pub use tail::{Missed, Tail, Tailed};
pub use text::{cut_to, escape_into, unescaped};
pub use timeline::{DeviceTimeline, Series, Span, Timeline};
pub use timeline_follower::{Held, TimelineFollower};
pub use writer::{Condition, Writer, WriterOptions};
