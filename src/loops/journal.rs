//! What happened around the peak: the events of its iteration, of the one before and of the one after.

use gpushim_trace::{Kind, Record};

/// The most entries, 40 bytes each: longer iterations have no journal.
const MOST: usize = 1 << 20;
/// Up to this many entries are kept of all iterations: what was taken for them may be parts of a single pass.
const FEW: usize = 1 << 16;
/// Iterations that begin after the peak before enough is known.
const AFTER: usize = 2;

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Its place among all events.
    pub ticket: u64,
    /// Its thread.
    pub thread: u32,
    /// What it was.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A block came to live, with this stack id.
    Allocated(u32),
    /// The block at this address ended.
    Freed(u64),
    /// A range of this name began.
    Push(u64),
    /// The innermost range ended.
    Pop,
}

/// Keeps what happened around a moment.
#[derive(Debug)]
pub struct Journal {
    /// The place of the first event after the moment.
    moment: u64,
    entries: Vec<JournalEntry>,
    /// Where the iteration begins among them that is under way.
    current: usize,
    /// Iterations that began after the moment.
    after: usize,
    is_too_long: bool,
    /// Whether it has everything that happened.
    is_all: bool,
}

impl Journal {
    /// Around a moment: the place of the first event after it.
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

    /// The moment that it is about.
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// What happened, in order; `None` if it was too much.
    pub fn entries(&self) -> Option<&[JournalEntry]> {
        (!self.is_too_long).then_some(&self.entries)
    }

    /// Whether what lived on to its end has lived through a whole iteration after the moment.
    pub fn is_whole(&self) -> bool {
        self.after >= AFTER
    }

    /// Whether it has everything that happened, from the beginning of the recording to its end.
    pub fn is_all(&self) -> bool {
        self.is_all
    }

    /// An iteration begins.
    pub fn begin(&mut self, ticket: u64) {
        if ticket >= self.moment {
            self.after += 1;
        } else if self.entries.len() > FEW || self.is_too_long {
            self.entries.drain(..self.current);
            self.current = self.entries.len();
            (self.is_too_long, self.is_all) = (false, false);
        }
    }

    /// A range begins or ends.
    pub fn event(&mut self, record: &Record) {
        let what = match record.event.kind {
            Kind::RangePush | Kind::RangeStart => What::Push(record.event.address),
            Kind::RangePop | Kind::RangeEnd => What::Pop,
            _ => return,
        };
        self.note(record.ticket, record.event.thread, what);
    }

    /// Something happens.
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
