//! A recorded run of any format, which the analyses read.
//!
//! Every format gives the same events, of [`gpushim_trace`], in the order of their times. Each pass
//! reads them anew, so that memory does not grow with the length of a run.
//!
//! [`open`] opens a file by its content. [`symbols`] names the functions of stacks. [`error`],
//! [`units`] and [`whole`] are of use to every crate above.

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
pub mod error;
mod nodes;
mod open;
mod owners;
mod packed;
mod pickle;
mod process;
mod rank;
mod read;
mod requests;
mod rmm;
#[cfg(any(test, feature = "samples"))]
#[doc(hidden)]
pub mod sample;
mod snapshot;
mod started;
pub mod symbols;
mod trace;
pub mod units;
mod unpacked;
mod viewer_page;
mod way;
pub mod whole;
mod workspace;

pub use beside::trace_of;
pub use blame::{blame, calls, ranges};
pub use caching::{Caching, Segment, Settings, Waiting};
pub use call_site::{CallSite, Function};
pub use code::Code;
pub use copied::{most as most_unpacked, plain};
pub use csv::LineLog;
pub use decorator::Decorator;
pub use open::{is_compressed, is_packed, open, open_ring, open_trace};
pub use owners::{Owned, Owner, Owners};
pub use process::{ENDED_BY, Gpu, Peer, Process};
pub use rank::{is_snapshot, rank_by_name};
pub use read::{Reader, read};
pub use snapshot::Snapshot;
pub use trace::names_with;
pub use unpacked::Opened;
pub use way::{Call, Way};
pub use workspace::is_workspace;

/// Completeness of a record; `recorded = readable + lost + torn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Coverage {
    /// Recorded in the life of the process.
    pub recorded: u64,
    /// Still there.
    pub readable: u64,
    /// Overwritten or given up.
    pub lost: u64,
    /// Half written when the process died.
    pub torn: u64,
    /// True if newer events have overwritten older ones: all figures are then of the rest.
    pub wrapped: bool,
    /// True if a part of the file is cut off or makes no sense.
    pub damaged: bool,
}

impl Coverage {
    /// Describes a recording that has all of its events.
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
    /// A call: the function, after the functions that the compiler inlined into it.
    Call(Rc<[Symbol]>),
    /// A range that was open on the thread.
    Range(String),
}

/// A recorded run, of any format.
pub trait Recording: Send + Sync {
    /// Returns the path of the file.
    fn path(&self) -> &Path;

    /// Returns the name of the format, for people: `gpushim trace 2.1`.
    fn format(&self) -> String;

    /// Returns the wall clock at the start, ns since 1970; 0 if unknown.
    fn wall_ns(&self) -> u64 {
        0
    }

    /// Returns facts for people: keys and values in their order; a key may occur several times.
    /// [`Recording::process`] and [`Recording::caching`] have the facts that code needs.
    fn facts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns the process that was recorded.
    fn process(&self) -> Process {
        Process::of(&self.facts())
    }

    /// Returns true if the times of its events were recorded.
    fn has_times(&self) -> bool {
        true
    }

    /// Returns the GPU of an ordinal, if the recording describes it.
    fn gpu(&self, ordinal: u8) -> Option<Gpu> {
        self.process().gpus.remove(&ordinal)
    }

    /// Returns the damaged or missing parts, each as a sentence that names the place.
    fn problems(&self) -> Vec<String>;

    /// Returns the completeness of the events.
    fn coverage(&self) -> Coverage;

    /// Returns the events, in the order of time.
    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_>;

    /// Returns the blocks that were live at the end, the oldest first, if the recording has them
    /// apart from its events. They include blocks whose allocations can no longer be read.
    fn live(&self) -> Option<Vec<LiveBlock>> {
        None
    }

    /// Returns the requested bytes live at the end, of a layer on a device. It has them if
    /// [`Recording::live`] lacks some of the blocks and sums of them are kept.
    fn live_bytes(&self, _: Layer, _: u8) -> Option<u64> {
        None
    }

    /// Returns the course of memory over the whole run, even if events are lost.
    fn timeline(&self) -> Timeline {
        Timeline::of(self.events())
    }

    /// Returns the text of an id: the name of a range, a mark, a thread.
    fn text(&self, _id: u64) -> Option<String> {
        None
    }

    /// Returns the names of the open ranges of a stack id, innermost first.
    fn open_ranges(&self, stack: u32) -> Vec<String> {
        ranges(&self.names().stack(stack))
    }

    /// Returns a number that stacks of the same frames have in common, independent of open ranges;
    /// 0 for a stack without frames.
    fn frames(&self, stack: u32) -> u64 {
        stack.into()
    }

    /// Returns the calls of a stack, by numbers that are valid within this recording only.
    fn way(&self, _stack: u32) -> Way {
        Way::default()
    }

    /// Returns the name and the file of a function of Python, by its number in a [`Way`].
    fn function(&self, _number: u64) -> Option<[String; 2]> {
        None
    }

    /// Returns the owners of the blocks. Reads all events at the first call.
    fn owners(&self) -> Arc<Owners> {
        Arc::default()
    }

    /// Returns the names of the stacks. The first look-ups take time, repeated ones do not.
    fn names(&self) -> Box<dyn Names + '_> {
        Box::new(NoNames)
    }

    /// Returns the handle of the stream of an allocation, a free or a tensor. Returns `None` if the
    /// recording lacks it; 0 is the default stream.
    fn stream(&self, record: &Record) -> Option<u64> {
        ordered_on(&record.event)
    }

    /// Returns data on a framework's caching allocator beyond the events, if the recording has it.
    fn caching(&self) -> Option<&Caching> {
        None
    }

    /// Returns true if it has no history: it lists the live blocks of one moment, and its events
    /// are derived from them.
    fn is_one_moment(&self) -> bool {
        false
    }

    /// Returns true if it has a framework's tensors.
    fn has_tensors(&self) -> bool {
        let is_tensor = |kind| matches!(kind, Kind::TensorAlloc | Kind::TensorFree);
        let live = self.live().unwrap_or_default();
        live.iter().any(|block| is_tensor(block.event.kind))
            || self.events().any(|record| is_tensor(record.event.kind))
    }
}

impl dyn Recording + '_ {
    /// Returns the blocks that are live at the end and were allocated before the first readable
    /// event, which is the second result.
    pub fn older(&self) -> (Vec<LiveBlock>, Option<Record>) {
        let first = self.events().next();
        let mut older = self.live().unwrap_or_default();
        older.retain(|block| first.is_none_or(|first| block.ns < first.ns));
        (older, first)
    }
}

/// Returns the handle of the stream that an allocation or free was ordered on.
fn ordered_on(event: &Event) -> Option<u64> {
    let is_ordered = matches!(event.kind, Kind::Alloc | Kind::Free)
        && matches!(event.class, Class::PoolAsync | Class::GraphNode);
    is_ordered.then_some(event.extra[0])
}

/// Names of the stacks of a recording.
pub trait Names {
    /// Returns the frames of a stack id, innermost first, then the open ranges, innermost first.
    /// Empty for 0.
    fn stack(&mut self, id: u32) -> Rc<[Frame]>;

    /// Returns the obstacles to better names up to now, each as a sentence.
    fn problems(&self) -> Vec<String>;
}

/// Names of a recording without stacks.
struct NoNames;

impl Names for NoNames {
    fn stack(&mut self, _id: u32) -> Rc<[Frame]> {
        Rc::new([])
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }
}
