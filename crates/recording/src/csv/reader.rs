//! One pass over a log: its requests in order, each completed from the requests before it.

use std::fs::File;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::line::{Columns, Line, line};
use super::lines::Lines;
use crate::csv::{Action, Dialect};
use crate::error::Error;
use gpushim_trace::{Class, Event, Kind, Record};

/// Number of bad lines that are named one by one.
const NAMED: usize = 20;

/// The problems found in a log.
#[derive(Default)]
pub(super) struct Faults {
    named: Vec<String>,
    lines: u64,
    unmatched: u64,
    doubled: u64,
    backwards: u64,
    end: Option<String>,
}

impl Faults {
    fn line(&mut self, number: u64, what: &Error) {
        self.lines += 1;
        if self.named.len() < NAMED {
            self.named.push(format!("line {number} {what}"));
        }
    }

    /// Returns true if lines make no sense, or the rest of the file cannot be read.
    pub(super) fn is_damage(&self) -> bool {
        self.lines > 0 || self.end.is_some()
    }

    /// Returns the problems as sentences.
    pub(super) fn sentences(mut self) -> Vec<String> {
        let more = self.lines - self.named.len() as u64;
        if more > 0 {
            self.named.push(format!("{more} more lines make no sense"));
        }
        for (count, what) in [
            (self.unmatched, "frees have no allocation before them"),
            (
                self.doubled,
                "allocations are of an address that was not freed",
            ),
            (
                self.backwards,
                "lines have an earlier time than the line before; they take its time",
            ),
        ] {
            if count > 0 {
                self.named.push(format!("{count} {what}"));
            }
        }
        self.named.extend(self.end);
        self.named
    }
}

/// A live block of the log.
struct Live {
    size: u64,
    class: Class,
}

/// The code `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i16 = 2;

/// The state of one pass over a log.
pub(super) struct Reader {
    lines: Lines,
    dialect: &'static Dialect,
    columns: Option<Columns>,
    /// Number of the lines that were read.
    count: u64,
    /// Live blocks by address: frees lack bytes and class in some logs.
    live: FxHashMap<u64, Live>,
    first: Option<u64>,
    last: u64,
    laps: u64,
    /// The time on the line before.
    said: u64,
    ticket: u64,
    /// The problems found up to now.
    pub(super) faults: Faults,
}

impl Iterator for Reader {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while self.faults.end.is_none() {
            let text = match self.lines.next() {
                Ok(text) => text?,
                Err(error) => {
                    let what = format!("it cannot be read beyond line {}: {error}", self.count + 1);
                    self.faults.end = Some(what);
                    return None;
                }
            };
            self.count += 1;
            match line(text, self.dialect, &mut self.columns) {
                Ok(Some(line)) => {
                    if let Some(record) = self.booked(&line) {
                        return Some(record);
                    }
                }
                Ok(None) => {}
                Err(what) => self.faults.line(self.count, &what),
            }
        }
        None
    }
}

impl Reader {
    /// Begins a pass over a file from its start.
    pub(super) fn new(file: Arc<File>, is_gzip: bool, dialect: &'static Dialect) -> Reader {
        Reader {
            lines: Lines::new(file, is_gzip),
            dialect,
            columns: None,
            count: 0,
            live: FxHashMap::default(),
            first: None,
            last: 0,
            laps: 0,
            said: 0,
            ticket: 0,
            faults: Faults::default(),
        }
    }

    /// Returns the event of a line, with the data of its block; `None` for a line without effect.
    fn booked(&mut self, line: &Line) -> Option<Record> {
        let (mut kind, mut size, mut class) = (Kind::Alloc, line.size, line.class);
        let (mut address, mut stream, mut result) = (line.address, line.stream, 0);
        match line.action {
            // The free of a null pointer is allowed, and has no effect.
            Action::Free if address == 0 => return None,
            Action::Free => {
                kind = Kind::Free;
                match self.live.remove(&address) {
                    Some(block) => (size, class) = (block.size, block.class),
                    None => self.faults.unmatched += 1,
                }
            }
            // A tracer that records the results of calls has no pointer for a failed request.
            Action::Alloc if address > 0 || size == 0 => {
                let before = self.live.insert(address, Live { size, class });
                self.faults.doubled += u64::from(before.is_some());
            }
            Action::Alloc | Action::Failure => {
                (kind, address, stream) = (Kind::OutOfMemory, 0, 0);
                result = OUT_OF_MEMORY;
            }
        }
        let ticket = self.ticket;
        self.ticket += 1;
        Some(Record {
            ticket,
            ns: self.timed(line.ns),
            event: Event {
                thread: line.thread,
                // Such a log has one memory resource, and so one device, which it does not name.
                device: 0,
                result,
                address,
                size,
                extra: [stream, 0],
                ..Event::new(kind, class)
            },
        })
    }

    /// Returns the ns since the start of the log.
    fn timed(&mut self, ns: u64) -> u64 {
        let said = std::mem::replace(&mut self.said, ns);
        if let Some(lap) = self.dialect.wraps
            && ns < said
            && said - ns > lap / 2
        {
            self.laps = self.laps.saturating_add(lap);
        }
        let now = ns.saturating_add(self.laps);
        let first = *self.first.get_or_insert(now);
        let passed = now.saturating_sub(first);
        if passed < self.last || now < first {
            self.faults.backwards += 1;
        }
        self.last = self.last.max(passed);
        self.last
    }
}
