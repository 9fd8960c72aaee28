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

use super::{Coverage, Recording};
use gpushim_trace::{Class, Record};

mod line;
mod lines;
mod reader;
#[cfg(test)]
mod tests;

use reader::Reader;

/// Highest number of events that are kept, 64 bytes each.
const KEPT: usize = 5 << 19;

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
    pub time: fn(&str) -> Option<u64>,
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
    kept: Option<Vec<Record>>,
    problems: Vec<String>,
    is_damaged: bool,
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
            kept: None,
            problems: Vec::new(),
            is_damaged: false,
        };
        let mut reader = log.reader();
        let mut all = Some(Vec::new());
        for record in reader.by_ref() {
            log.events += 1;
            match &mut all {
                Some(kept) if kept.len() < KEPT => kept.push(record),
                _ => all = None,
            }
        }
        log.kept = all;
        log.is_damaged = reader.faults.is_damage();
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

    fn problems(&self) -> Vec<String> {
        self.problems.clone()
    }

    fn coverage(&self) -> Coverage {
        Coverage {
            damaged: self.is_damaged,
            ..Coverage::complete(self.events)
        }
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        match &self.kept {
            Some(kept) => Box::new(kept.iter().copied()),
            None => Box::new(self.reader()),
        }
    }

    fn has_tensors(&self) -> bool {
        false
    }
}
