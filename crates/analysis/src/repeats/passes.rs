//! The beginnings of a loop's passes, in bounded space.

use gpushim_trace::Record;
use serde::Serialize;

/// Largest number of kept beginnings of a loop. If there are more passes, each kept one stands for
/// several.
const APART: usize = 1 << 16;
/// Such passes of a loop to which few of the events since its beginning belong,
const APART_COLD: usize = 1 << 8;
/// at most one in this many.
const COLD: u64 = 8;

/// Place among the events of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Start"))]
pub struct Moment {
    /// Ns since the start of the recording.
    pub ns: u64,
    /// The number of its first event.
    pub ticket: u64,
}

impl Moment {
    /// Returns the moment of an event.
    pub fn of(record: &Record) -> Moment {
        Moment {
            ns: record.ns,
            ticket: record.ticket,
        }
    }
}

/// Beginnings of passes, and the end of the open one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passes {
    pub(crate) begun: Vec<Moment>,
    /// Events of the loop before the pass that is open.
    covered: u64,
    open: Option<u64>,
    pub(crate) count: u64,
    /// Number of times that the loop was entered.
    pub(crate) entries: u64,
    /// Number of passes that each of `begun` stands for.
    pub(crate) stride: u64,
}

impl Passes {
    /// Begins the first pass after the loop was entered.
    pub(crate) fn enter(&mut self, at: Moment) {
        self.entries += 1;
        self.begin(at);
    }

    /// Notes that a pass begins.
    pub(crate) fn begin(&mut self, at: Moment) {
        self.leave(at.ticket);
        self.open = Some(at.ticket);
        self.stride = self.stride.max(1);
        if self.count.is_multiple_of(self.stride) {
            let is_full = self.begun.len() >= APART;
            let is_checked = !self.begun.is_empty() && self.begun.len().is_multiple_of(APART_COLD);
            if is_full || is_checked && self.is_cold(at) {
                self.thin();
            }
            if self.count.is_multiple_of(self.stride) {
                self.begun.push(at);
            }
        }
        self.count += 1;
    }

    /// Ends the open pass at an event that no longer belongs to it.
    pub(crate) fn leave(&mut self, ticket: u64) {
        if let Some(open) = self.open.take() {
            self.covered += ticket.saturating_sub(open);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the number of events of all passes, given the end of the recording.
    pub(crate) fn covered(&self, end: u64) -> u64 {
        self.covered + self.open.map_or(0, |open| end.saturating_sub(open))
    }

    fn is_cold(&self, at: Moment) -> bool {
        let first = self.begun.first().map_or(at.ticket, |first| first.ticket);
        self.covered.saturating_mul(COLD) < at.ticket.saturating_sub(first)
    }

    /// Keeps every second beginning.
    fn thin(&mut self) {
        let mut keep = false;
        self.begun.retain(|_| {
            keep = !keep;
            keep
        });
        self.stride *= 2;
    }
}
