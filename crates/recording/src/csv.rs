//! Logs that have a line for each request: a header that names the columns, then
//! `alloc,0x7f…,512,…`.
//!
//! The file, plain or gzip, is read once, and its events are kept if they are few enough
//! ([`KEPT`]). If there are more, each pass reads the file anew: memory grows with the live blocks,
//! not with the length of the log. A malformed line is named and left out; the other lines are
//! read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Coverage, Names, NoNames, NumberedRequest, Recording};
use gpushim_trace::{Class, Kind, LiveBlock, Record, Timeline};

mod batches;
mod blocks;
mod line;
mod number;
mod reader;
mod row;
#[cfg(test)]
mod tests;

pub(super) use number::decimal;
use reader::Reader;
use row::{By, Row};

/// Highest number of events that are kept, 40 bytes each.
const KEPT: usize = 1 << 22;

/// Number of columns of a request, in the order of [`Dialect::columns`].
pub(super) const COLUMNS: usize = 6;

/// The operation of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Alloc,
    Free,
    Failure,
}

/// Format of a sort of log.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The name of the format, for people.
    pub format: &'static str,
    /// Names of the columns of action, address, bytes, stream, thread and time.
    pub columns: [&'static str; COLUMNS],
    /// The words for the operations.
    pub actions: &'static [(&'static str, Action)],
    /// Parses a time of the log; ns.
    pub time: fn(&[u8]) -> Option<u64>,
    /// Period in ns after which times begin again, if they do.
    pub wraps: Option<u64>,
    /// The class of memory without a stream, which is `-` or empty. All other memory is
    /// stream-ordered.
    pub without_stream: Class,
}

impl Dialect {
    /// Returns true if a line is the header of such a log.
    pub(super) fn is_header(&self, line: &str) -> bool {
        // The column of threads is optional.
        let needed = self.columns.iter().enumerate().filter(|(at, _)| *at != 4);
        let places = self.places(line);
        needed.into_iter().all(|(at, _)| places[at].is_some())
    }

    fn places(&self, header: &str) -> [Option<usize>; COLUMNS] {
        let names: Vec<&str> = header.trim_start_matches('\u{feff}').split(',').collect();
        self.columns.map(|column| {
            let is_it = |name: &&str| name.trim().eq_ignore_ascii_case(column);
            names.iter().position(is_it)
        })
    }
}

/// An open log with a line for each request.
#[derive(Debug)]
pub struct LineLog {
    path: PathBuf,
    file: Arc<File>,
    is_gzip: bool,
    dialect: &'static Dialect,
    events: u64,
    /// All events, unless they are too many.
    rows: Option<Vec<Row>>,
    /// Streams and threads of these events.
    by: Vec<By>,
    /// True if each event is an allocation, or the free of one.
    is_plain: bool,
    problems: Vec<String>,
}

impl LineLog {
    /// Reads the log once, to find its problems.
    pub(super) fn new(
        path: &Path,
        file: File,
        is_gzip: bool,
        dialect: &'static Dialect,
    ) -> LineLog {
        let mut log = LineLog {
            path: path.to_path_buf(),
            file: Arc::new(file),
            is_gzip,
            dialect,
            events: 0,
            rows: None,
            by: Vec::new(),
            is_plain: false,
            problems: Vec::new(),
        };
        let mut reader = log.reader();
        let mut rows = Some(Vec::new());
        while let Some(row) = reader.next_row() {
            log.events += 1;
            match &mut rows {
                Some(kept) if kept.len() < KEPT => kept.push(row),
                _ => rows = None,
            }
        }
        log.rows = rows;
        log.by = reader.by();
        log.is_plain = reader.is_plain && reader.blocks <= u64::from(u32::MAX);
        log.problems = reader.faults.sentences();
        log
    }

    fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.file), self.is_gzip, self.dialect)
    }
}

impl Recording for LineLog {
    fn path(&self) -> &Path {
        &self.path
    }

    fn format(&self) -> String {
        self.dialect.format.to_string()
    }

    fn wall_ns(&self) -> u64 {
        0
    }

    fn facts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    fn coverage(&self) -> Coverage {
        Coverage::complete(self.events)
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        match &self.rows {
            Some(rows) => {
                let tickets = 0..;
                let by = &self.by;
                let records = tickets.zip(rows);
                Box::new(records.map(|(ticket, row)| row.record(ticket, by)))
            }
            None => Box::new(self.reader()),
        }
    }

    fn has_tensors(&self) -> bool {
        false
    }

    fn numbered(&self) -> Option<Box<dyn Iterator<Item = NumberedRequest> + '_>> {
        let rows = self.rows.as_ref().filter(|_| self.is_plain)?;
        Some(Box::new(rows.iter().map(|row| {
            let (stream, thread) = self.by.get(row.by as usize).copied().unwrap_or_default();
            NumberedRequest {
                is_free: row.kind == Kind::Free,
                block: row.block,
                bytes: row.size,
                stream: (row.class == Class::PoolAsync).then_some(stream),
                thread,
                ns: row.ns,
            }
        })))
    }

    fn live(&self) -> Option<Vec<LiveBlock>> {
        None
    }

    fn timeline(&self) -> Timeline {
        Timeline::of(self.events())
    }

    fn text(&self, _id: u64) -> Option<String> {
        None
    }

    fn names(&self) -> Box<dyn Names + '_> {
        Box::new(NoNames)
    }
}
