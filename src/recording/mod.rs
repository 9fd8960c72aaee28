//! A recorded run, of any format: what the analyses read.
//!
//! Everything that can be opened comes to the same events, those of [`gpushim_trace`], in the order of
//! their times; each pass reads them anew, so that memory does not grow with the length of a run.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::symbols::Symbol;
use gpushim_trace::{Class, Event, Kind, Layer, LiveBlock, Record, Timeline};

mod beside;
mod blame;
mod caching;
mod call_site;
mod code;
mod copied;
mod csv;
mod decorator;
mod facts;
mod nodes;
mod open;
mod owners;
mod packed;
mod pickle;
mod rank;
mod read;
mod requests;
mod rmm;
mod snapshot;
mod started;
mod trace;
mod unpacked;
mod viewer_page;
mod way;
mod workspace;

pub use beside::trace_of;
pub use blame::{blame, calls, ranges};
pub use caching::{Caching, Segment, Waiting};
pub use call_site::{CallSite, Function};
pub use code::Code;
pub use copied::{most as most_unpacked, plain};
pub use csv::LineLog;
pub use decorator::Decorator;
pub use facts::Gpu;
pub use open::{is_compressed, open, open_ring, open_trace};
pub use owners::{Owned, Owner, Owners};
pub use rank::{is_snapshot, rank_by_name};
pub use read::{Reader, read};
pub use snapshot::Snapshot;
pub use trace::names_with;
pub use unpacked::OpenTrace;
pub use way::Way;
pub use workspace::is_workspace;

/// How complete a record is; `recorded = readable + lost + torn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Coverage {
    /// Recorded in the life of the process.
    pub recorded: u64,
    /// Still there.
    pub readable: u64,
    /// Overwritten or given up.
    pub lost: u64,
    /// Half written when the process died.
    pub torn: u64,
    /// Whether newer events have overwritten older ones: all figures are then of the rest.
    pub wrapped: bool,
}

impl Coverage {
    /// Of a recording that has all of its events.
    pub fn complete(events: u64) -> Coverage {
        Coverage {
            recorded: events,
            readable: events,
            ..Coverage::default()
        }
    }
}

/// One element of a stack, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A call: the function, after those that the compiler put into it.
    Call(Rc<[Symbol]>),
    /// A range that was open on the thread.
    Range(String),
}

/// An allocation or a free of memory that a pool of the driver or ours serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedRequest {
    /// Whether the block comes back.
    pub is_free: bool,
    /// The number of the block, in the order of allocation, from 0 without gaps; of a block of no bytes it says nothing.
    pub block: u32,
    /// Bytes asked for, of a free those of its allocation.
    pub bytes: u64,
    /// The handle of the stream it is ordered on; `None` for the `cudaMalloc` family.
    pub stream: Option<u64>,
    /// The thread.
    pub thread: u32,
    /// Ns since the start of the recording.
    pub ns: u64,
}

/// A run.
pub trait Recording: Send + Sync {
    /// The file.
    fn path(&self) -> &Path;

    /// What it is, for people: `gpushim trace 2.1`.
    fn format(&self) -> String;

    /// Wall clock at the start, ns since 1970; 0 if unknown.
    fn wall_ns(&self) -> u64;

    /// Facts about the process, keys and values in their order; a key may come several times.
    fn facts(&self) -> Vec<(String, String)>;

    /// What is damaged or missing, each a sentence that names the place.
    fn problems(&self) -> Vec<String>;

    /// How complete it is.
    fn coverage(&self) -> Coverage;

    /// The events, in the order of time.
    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_>;

    /// What was live at the end, if the recording says so apart from its events; the oldest first. It
    /// has blocks whose allocations can no longer be read.
    fn live(&self) -> Option<Vec<LiveBlock>>;

    /// Bytes asked for and live at the end, of a layer on a device, where [`Recording::live`] lacks some of the
    /// blocks and sums of them are kept all the same.
    fn live_bytes(&self, _: Layer, _: u8) -> Option<u64> {
        None
    }

    /// How memory went over the whole run, even where events are lost.
    fn timeline(&self) -> Timeline;

    /// The text of an id: the name of a range, a mark, a thread.
    fn text(&self, id: u64) -> Option<String>;

    /// The names of the ranges that a stack id says were open, innermost first.
    fn open_ranges(&self, stack: u32) -> Vec<String> {
        ranges(&self.names().stack(stack))
    }

    /// A number that stacks of the same frames have in common, whatever ranges were open; 0 for a stack
    /// without frames.
    fn frames(&self, stack: u32) -> u64 {
        stack.into()
    }

    /// The calls of a stack, by numbers that mean something within this recording only.
    fn way(&self, _stack: u32) -> Way {
        Way::default()
    }

    /// The name and the file of a function of Python, by its number in a [`Way`].
    fn function(&self, _number: u64) -> Option<[String; 2]> {
        None
    }

    /// Who keeps the blocks. Reads all events at the first call.
    fn owners(&self) -> Arc<Owners> {
        Arc::default()
    }

    /// The names of the stacks. Creating it takes time, repeated look-ups do not.
    fn names(&self) -> Box<dyn Names + '_>;

    /// The handle of the stream that an allocation or free was ordered on, or that a tensor was made for, if the recording
    /// says so; 0 is the default stream.
    fn stream(&self, record: &Record) -> Option<u64> {
        ordered_on(&record.event)
    }

    /// Its events as requests, if each of them is an allocation or the free of one, of device 0, and it has numbered them. Others
    /// are found by a ledger.
    fn numbered(&self) -> Option<Box<dyn Iterator<Item = NumberedRequest> + '_>> {
        None
    }

    /// What a framework's caching allocator says beyond the events, if the recording has it.
    fn caching(&self) -> Option<&Caching> {
        None
    }

    /// Whether it has no history: it says what was live at one moment, and its events are made up of that.
    fn is_one_moment(&self) -> bool {
        false
    }

    /// Whether it has a framework's tensors.
    fn has_tensors(&self) -> bool {
        let is_tensor = |kind| matches!(kind, Kind::TensorAlloc | Kind::TensorFree);
        let live = self.live().unwrap_or_default();
        live.iter().any(|block| is_tensor(block.event.kind))
            || self.events().any(|record| is_tensor(record.event.kind))
    }

    /// The GPU of an ordinal, if the recording describes it.
    fn gpu(&self, ordinal: u8) -> Option<Gpu> {
        Gpu::parse(&self.fact(&format!("gpu.{ordinal}"))?)
    }

    /// The first fact of a key.
    fn fact(&self, key: &str) -> Option<String> {
        let mut facts = self.facts().into_iter();
        facts.find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// The handle of the stream that an allocation or free was ordered on.
fn ordered_on(event: &Event) -> Option<u64> {
    let is_ordered = matches!(event.kind, Kind::Alloc | Kind::Free)
        && matches!(event.class, Class::PoolAsync | Class::GraphNode);
    is_ordered.then_some(event.extra[0])
}

/// Names of the stacks of a recording.
pub trait Names {
    /// The frames of a stack id, innermost first, then the ranges that were open, innermost first. Empty
    /// for 0.
    fn stack(&mut self, id: u32) -> Rc<[Frame]>;

    /// What stood in the way of better names so far, each a sentence.
    fn problems(&self) -> Vec<String>;
}

/// Of a recording without stacks.
struct NoNames;

impl Names for NoNames {
    fn stack(&mut self, _id: u32) -> Rc<[Frame]> {
        Rc::new([])
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}
