//! One pass over a log: its requests in order, each completed from the requests before it.

use std::fs::File;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::batches::Batches;
use super::blocks::Blocks;
use super::line::Line;
use super::row::{By, Row};
use crate::csv::{Action, Dialect};
use crate::error::Error;
use gpushim_trace::{Class, Kind, Record};

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
    number: u32,
}

/// The state of one pass over a log.
pub(super) struct Reader {
    batches: Batches,
    batch: std::vec::IntoIter<Line>,
    dialect: &'static Dialect,
    /// Number of lines of the earlier batches and of this one.
    lines: u64,
    /// Live blocks by address: frees lack bytes and class in some logs.
    live: FxHashMap<u64, Live>,
    /// Streams and threads; `places` has the index of each.
    by: Vec<By>,
    places: FxHashMap<By, u32>,
    latest: u32,
    first: Option<u64>,
    last: u64,
    laps: u64,
    /// The time on the line before.
    said: u64,
    ticket: u64,
    /// Allocations of more than 0 bytes up to now.
    pub(super) blocks: u64,
    /// True if each event is an allocation at an address where nothing is live, or the free of one.
    pub(super) is_plain: bool,
    /// The problems found up to now.
    pub(super) faults: Faults,
}

impl Iterator for Reader {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let row = self.next_row()?;
        let ticket = self.ticket;
        self.ticket += 1;
        Some(row.record(ticket, &self.by))
    }
}

impl Reader {
    /// Begins a pass over a file from its start.
    pub(super) fn new(file: Arc<File>, is_gzip: bool, dialect: &'static Dialect) -> Reader {
        Reader {
            batches: Batches::new(Blocks::new(file, is_gzip), dialect),
            batch: Vec::new().into_iter(),
            dialect,
            lines: 0,
            live: FxHashMap::default(),
            by: Vec::new(),
            places: FxHashMap::default(),
            latest: 0,
            first: None,
            last: 0,
            laps: 0,
            said: 0,
            ticket: 0,
            blocks: 0,
            is_plain: true,
            faults: Faults::default(),
        }
    }

    /// Returns the next event of the log.
    #[inline]
    pub(super) fn next_row(&mut self) -> Option<Row> {
        loop {
            while let Some(line) = self.batch.next() {
                if let Some(row) = self.booked(&line) {
                    return Some(row);
                }
            }
            let Some(batch) = self.batches.next() else {
                if let Some(error) = self.batches.end.take() {
                    let what = format!("it cannot be read beyond line {}: {error}", self.lines + 1);
                    self.faults.end.get_or_insert(what);
                }
                return None;
            };
            for (line, what) in &batch.faults {
                self.faults.line(self.lines + line, what);
            }
            self.lines += batch.lines;
            self.batch = batch.requests.into_iter();
        }
    }

    /// Returns the streams and threads that rows refer to.
    pub(super) fn by(&mut self) -> Vec<By> {
        std::mem::take(&mut self.by)
    }

    /// Returns the event of a line, with the data of its block; `None` for a line without effect.
    fn booked(&mut self, line: &Line) -> Option<Row> {
        let (mut kind, mut size, mut class) = (Kind::Alloc, line.size, line.class);
        let mut address = line.address;
        let mut number = self.blocks as u32;
        match line.action {
            // The free of a null pointer is allowed, and has no effect.
            Action::Free if address == 0 => return None,
            Action::Free => {
                kind = Kind::Free;
                match self.live.remove(&address) {
                    Some(block) => (size, class, number) = (block.size, block.class, block.number),
                    None => {
                        self.faults.unmatched += 1;
                        self.is_plain = false;
                    }
                }
            }
            // A tracer that records the results of calls has no pointer for a failed request.
            Action::Alloc if address > 0 || size == 0 => {
                let block = Live {
                    size,
                    class,
                    number,
                };
                self.blocks += u64::from(size > 0);
                if self.live.insert(address, block).is_some() {
                    self.faults.doubled += 1;
                    self.is_plain = false;
                }
            }
            Action::Alloc | Action::Failure => {
                (kind, address) = (Kind::OutOfMemory, 0);
                self.is_plain = false;
            }
        }
        let stream = if kind == Kind::OutOfMemory {
            0
        } else {
            line.stream
        };
        Some(Row {
            ns: self.timed(line.ns),
            address,
            size,
            block: number,
            by: self.place((stream, line.thread)),
            kind,
            class,
        })
    }

    /// Returns the place of a stream and a thread, which are mostly the ones of the line before.
    fn place(&mut self, by: By) -> u32 {
        if self.by.get(self.latest as usize) != Some(&by) {
            self.latest = *self.places.entry(by).or_insert_with(|| {
                self.by.push(by);
                (self.by.len() - 1) as u32
            });
        }
        self.latest
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
