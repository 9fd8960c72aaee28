//! Ranges and marks of the program, from NVTX or from this library's own functions. This module
//! serves each push, pop, start, end and mark, and keeps the ranges in which an allocation happens.
//!
//! A mark never opens the trace: a process may announce its phases and use no CUDA. Ranges that are
//! already open when the trace opens are recorded later. On the thread that opens the trace it
//! happens at once, on another thread at its next announcement.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_trace::per_thread::{AtThreadEnd, OnDemand};
use gpushim_trace::{Kind, StackNode, Writer};

use crate::base::thread;
use crate::record::{events, phase, trace};
mod names;

pub use names::{Label, Name, Text, name};

/// Most ranges that are kept per thread. Further ones are counted, so that pops stay in step, and
/// not recorded.
const DEPTH: usize = 64;
/// Result of a pop without a push, and of a push without memory for it: NVTX documents a negative
/// number.
const NOTHING_OPEN: c_int = -1;

/// One open range of a thread.
#[derive(Clone, Copy)]
struct Range {
    domain: Option<&'static Name>,
    label: Label,
    /// Its node; 0 until there is a trace.
    node: u32,
    is_recorded: bool,
}

/// The ranges that are open on a thread, outermost first.
struct Open {
    depth: Cell<usize>,
    ranges: [Cell<Range>; DEPTH],
}

thread_local! {
    static OPEN: OnDemand<Open> = const { OnDemand::new() };
}

static END: AtThreadEnd = AtThreadEnd::new(ended);

extern "C" fn ended(_: *mut c_void) {
    // SAFETY: a thread that ends announces nothing meanwhile.
    OPEN.with(|open| unsafe { open.free() });
}

/// Serial number of the thread that pushed last.
static LEADER: AtomicU64 = AtomicU64::new(0);

/// Begins a range on this thread. Returns its level within its domain, from 0.
pub fn push(domain: Option<&'static Name>, text: &Text) -> c_int {
    OPEN.with(|open| {
        let Some(open) = open.get_or_make(&END, Open::none) else {
            return NOTHING_OPEN;
        };
        let writer = trace::opened();
        let level = open.level(domain);
        let depth = open.depth.get();
        open.depth.set(depth.saturating_add(1));
        if let Some(place) = open.ranges.get(depth) {
            place.set(Range {
                domain,
                label: text.label(writer),
                node: 0,
                is_recorded: false,
            });
            if let Some(writer) = writer {
                LEADER.store(thread::serial(), Ordering::Relaxed);
                open.record(writer);
            }
        }
        level
    })
}

/// Ends the innermost range of a domain on this thread, which may have ranges of other domains
/// within. Returns its level within the domain.
pub fn pop(domain: Option<&'static Name>) -> c_int {
    OPEN.with(|open| {
        let Some(open) = open.get() else {
            return NOTHING_OPEN;
        };
        let writer = trace::opened();
        let depth = open.depth.get();
        if depth > DEPTH {
            open.depth.set(depth - 1);
            return open.level(domain);
        }
        if let Some(writer) = writer {
            open.record(writer);
        }
        if !open.remove(domain) {
            return NOTHING_OPEN;
        }
        if let Some(writer) = writer {
            let node = open.record(writer);
            events::range(Kind::RangePop, 0, 0, 0, Some(node));
        }
        open.level(domain)
    })
}

/// Begins a range that may end on another thread. `number`: given by a profiler, if one is
/// attached. Returns its number.
pub fn start(domain: Option<&'static Name>, text: &Text, number: Option<u64>) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = number.unwrap_or_else(|| LAST.fetch_add(1, Ordering::Relaxed) + 1);
    if let Some(writer) = trace::opened() {
        let (name, domain) = (text.id(writer), id(domain, writer));
        events::range(Kind::RangeStart, name, domain, number, None);
    }
    number
}

/// Ends a range that [`start`] began.
pub fn end(number: u64) {
    events::range(Kind::RangeEnd, 0, 0, number, None);
}

/// Records a mark: one moment, without a duration.
pub fn mark(domain: Option<&'static Name>, text: &Text) {
    if let Some(writer) = trace::opened() {
        let (name, domain) = (text.id(writer), id(domain, writer));
        events::range(Kind::Mark, name, domain, 0, None);
    }
}

/// Records the open ranges of the thread that has just opened the trace.
pub fn opened(writer: &Writer) {
    OPEN.with(|open| {
        if let Some(open) = open.get()
            && open.depth.get() > 0
        {
            LEADER.store(thread::serial(), Ordering::Relaxed);
            open.record(writer);
        }
    });
}

fn id(name: Option<&'static Name>, writer: &Writer) -> u32 {
    name.map_or(0, |name| name.id(writer))
}

impl Open {
    fn none() -> Open {
        let range = Range {
            domain: None,
            label: Label::Id(0),
            node: 0,
            is_recorded: false,
        };
        Open {
            depth: Cell::new(0),
            ranges: [range; DEPTH].map(Cell::new),
        }
    }

    fn kept(&self) -> impl DoubleEndedIterator<Item = &Cell<Range>> + ExactSizeIterator {
        self.ranges.iter().take(self.depth.get())
    }

    /// Returns the number of open ranges of a domain. Ranges beyond the depth count for every
    /// domain.
    fn level(&self, domain: Option<&'static Name>) -> c_int {
        let of_domain = self.kept().filter(|range| is_of(range, domain)).count();
        let beyond = self.depth.get().saturating_sub(DEPTH);
        c_int::try_from(of_domain + beyond).unwrap_or(c_int::MAX)
    }

    /// Removes the innermost range of a domain. The ranges within it become children of the range
    /// around it.
    fn remove(&self, domain: Option<&'static Name>) -> bool {
        let Some(at) = self.kept().rposition(|range| is_of(range, domain)) else {
            return false;
        };
        let within = self.kept().skip(at + 1);
        for (place, inner) in self.kept().skip(at).zip(within) {
            place.set(Range {
                node: 0,
                ..inner.get()
            });
        }
        self.depth.set(self.depth.get() - 1);
        true
    }

    /// Gives every range its node, and records the ranges that are not in the trace yet. Returns
    /// the innermost node, and makes it the thread's.
    fn record(&self, writer: &Writer) -> u32 {
        let mut node = 0;
        for place in self.kept() {
            let mut range = place.get();
            if range.node == 0 {
                let (name, domain) = (range.label.id(writer), id(range.domain, writer));
                range.node = writer.stack_child(node, StackNode::Range { name, domain });
                range.label = Label::Id(name);
                if !range.is_recorded {
                    events::range(Kind::RangePush, name, domain, 0, Some(range.node));
                    range.is_recorded = true;
                }
                place.set(range);
            }
            node = range.node;
        }
        phase::set(node, LEADER.load(Ordering::Relaxed) == thread::serial());
        node
    }
}

fn is_of(range: &Cell<Range>, domain: Option<&'static Name>) -> bool {
    match (range.get().domain, domain) {
        (None, None) => true,
        (Some(of), Some(domain)) => std::ptr::eq(of, domain),
        _ => false,
    }
}
