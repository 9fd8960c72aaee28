//! Events around the peak: of its iteration, of the one before and of the one after.

use gpushim_trace::{Kind, Record};

/// Highest number of entries, 40 bytes each: longer iterations have no journal.
const MOST: usize = 1 << 20;
/// Entries up to which the journal keeps all iterations: supposed iterations may be parts of a
/// single pass.
const FEW: usize = 1 << 16;
/// Iterations that must begin after the peak before enough is known.
const AFTER: usize = 2;

/// An entry of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Place of the event among all of the recording, as its records have it.
    pub ticket: u64,
    /// Number of the thread that made it.
    pub thread: u32,
    /// Block or range that began or ended by it.
    pub what: What,
}

/// A change of blocks or ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A block was allocated, with this stack id.
    Allocated(u32),
    /// The block at this address ended.
    Freed(u64),
    /// A range of this name began.
    Push(u64),
    /// The innermost range ended.
    Pop,
}

/// Keeps the events around a moment.
#[derive(Debug)]
pub struct Journal {
    /// The place of the first event after the moment.
    moment: u64,
    entries: Vec<JournalEntry>,
    /// Number of the entry at which the current iteration begins.
    current: usize,
    /// Iterations that began after the moment.
    after: usize,
    is_too_long: bool,
    /// True if no event is left out.
    is_all: bool,
}

impl Journal {
    /// Creates a journal around a moment, which is the place of the first event after it.
    pub fn around(moment: u64) -> Journal {
        Journal {
            moment,
            entries: Vec::new(),
            current: 0,
            after: 0,
            is_too_long: false,
            is_all: true,
        }
    }

    /// Returns the moment that it is about.
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// Returns the entries in order; `None` if there were too many.
    pub fn entries(&self) -> Option<&[JournalEntry]> {
        (!self.is_too_long).then_some(&self.entries)
    }

    /// Returns true if blocks that are live at its end have lived through a whole iteration after
    /// the moment.
    pub fn is_whole(&self) -> bool {
        self.after >= AFTER
    }

    /// Returns true if it has all events from the beginning of the recording to its end.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// Notes that an iteration begins.
    pub fn begin(&mut self, ticket: u64) {
        if ticket >= self.moment {
            self.after += 1;
        } else if self.entries.len() > FEW || self.is_too_long {
            self.entries.drain(..self.current);
            self.current = self.entries.len();
            (self.is_too_long, self.is_all) = (false, false);
        }
    }

    /// Notes that a range begins or ends.
    pub fn event(&mut self, record: &Record) {
        let what = match record.event.kind {
            Kind::RangePush | Kind::RangeStart => What::Push(record.event.address),
            Kind::RangePop | Kind::RangeEnd => What::Pop,
            _ => return,
        };
        self.note(record.ticket, record.event.thread, what);
    }

    /// Adds an entry, if there is room.
    pub fn note(&mut self, ticket: u64, thread: u32, what: What) {
        if self.is_too_long || self.is_whole() && self.entries.len() > FEW {
            self.is_all = false;
            return;
        }
        if self.entries.len() >= MOST {
            self.entries = Vec::new();
            (self.current, self.is_too_long) = (0, true);
            return;
        }
        self.entries.push(JournalEntry {
            ticket,
            thread,
            what,
        });
    }
}
