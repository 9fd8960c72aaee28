//! The reader: for a file in any state, it gives the readable content and names the damage.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::event::Event;
use super::layout::{PartKind, control, facts};
use super::text::unescaped;
use super::timeline::{Ledger, Timeline};
use crate::attached;
use crate::regular::open_regular;

mod bytes;
mod events;
mod header;
mod holes;
mod live;
pub mod lost;
mod moment;
pub(super) mod ring;
mod spool;
mod tables;
mod totals;

use bytes::Bytes;
pub use events::Events;
pub use header::Header;
use header::Parts;
pub use live::{LiveBlock, LiveTable};
pub use moment::Moment;
use ring::RingView;
use tables::Tables;
pub use totals::{Sums, Totals};

/// Trace file that was opened, of a finished, a killed or a running process.
///
/// ```
/// use gpushim_trace::{Class, Event, Kind, Trace, Writer, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// # let writer = Writer::create(&path, &WriterOptions::default())?;
/// # writer.record(&Event { size: 4096, ..Event::new(Kind::Alloc, Class::Device) });
/// let trace = Trace::open(&path)?;
/// for problem in trace.problems() {
///     eprintln!("{}: {problem}", trace.path().display());
/// }
/// let requested: u64 = trace
///     .events()
///     .filter(|record| record.event.kind == Kind::Alloc && record.event.result == 0)
///     .map(|record| record.event.size)
///     .sum();
/// assert_eq!(requested, 4096);
/// assert_eq!(trace.recorded(), trace.readable() + trace.lost() + trace.torn());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Trace {
    bytes: Bytes,
    path: PathBuf,
    header: Header,
    parts: Parts,
    ring: RingView,
    tables: Tables,
    spool: Option<spool::Spool>,
    is_damaged: bool,
    problems: Vec<String>,
}

/// One event as read from the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Place in the order of events, from 0; unreadable events count as the oldest.
    pub ticket: u64,
    /// Time of the event, ns since the start of the trace.
    pub ns: u64,
    /// The recorded event itself.
    pub event: Event,
}

/// Action named by the [`Error`]s of this module.
const READ: &str = "read the trace";

impl Trace {
    /// Opens and checks a trace file, and its spool.
    ///
    /// Damage that leaves something readable is not an error: [`Trace::problems`] names it.
    ///
    /// # Errors
    /// The file cannot be read, is no trace, or has an unusable header.
    pub fn open(path: &Path) -> Result<Trace, Error> {
        let (mut trace, file, end) = Trace::map(path)?;
        // After the ring: an event that is overwritten meanwhile was spooled before.
        let area = trace.header.file_bytes..end;
        trace.spool = spool::Spool::open(
            (path, file),
            area,
            trace.header.wall_ns,
            &mut trace.ring,
            &trace.bytes,
            &mut trace.problems,
        );
        Ok(trace)
    }

    /// Opens a trace like [`Trace::open`], without the spool, which may have gigabytes to scan. For
    /// uses without events, or with the newest ones only.
    ///
    /// # Errors
    /// The errors of [`Trace::open`].
    pub fn open_ring(path: &Path) -> Result<Trace, Error> {
        Trace::map(path).map(|(trace, ..)| trace)
    }

    /// Opens a trace without its spool; also returns the file, and where what is attached begins.
    fn map(path: &Path) -> Result<(Trace, File, u64), Error> {
        let (file, meta) = open_regular(path).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                Error::new(READ, path, "read it: it is not a regular file")
            }
            _ => Error::io(READ, path, "open it: ", error),
        })?;
        let end = attached::begin(&file, meta.len());
        let mapped = header::mapped(&file, end);
        let bytes = Bytes::map(path, &file, &meta, mapped)
            .map_err(|error| Error::io(READ, path, "map it: ", error))?;
        Ok((Trace::parse(path, bytes)?, file, end))
    }

    /// Parses a trace like [`Trace::open`], from the content of a file, without a spool.
    ///
    /// # Errors
    /// The errors of [`Trace::open`]; the path is only a name for messages.
    ///
    /// ```
    /// use std::path::Path;
    /// use gpushim_trace::Trace;
    ///
    /// let refused = Trace::from_bytes(Path::new("notes.txt"), b"no trace").map(|_| ());
    /// let message = refused.map_err(|error| format!("failed to {error}"));
    /// assert!(message.is_err_and(|text| text.starts_with("failed to read the trace notes.txt: ")));
    /// ```
    pub fn from_bytes(path: &Path, content: &[u8]) -> Result<Trace, Error> {
        Trace::parse(path, Bytes::copy(content))
    }

    fn parse(path: &Path, bytes: Bytes) -> Result<Trace, Error> {
        let mut problems = Vec::new();
        let (header, parts) = header::parse(path, &bytes, &mut problems)?;
        let ring = RingView::scan(&bytes, &parts, &mut problems);
        let tables = Tables::scan(&bytes, &parts, &mut problems);
        Ok(Trace {
            bytes,
            path: path.to_path_buf(),
            header,
            parts,
            ring,
            tables,
            spool: None,
            is_damaged: !problems.is_empty(),
            problems,
        })
    }

    /// Returns the path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the decoded header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns true if a part of the file is cut off or makes no sense. A spool that a kill cut does
    /// not count: the ring still has its last events.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    /// Returns the damages found, each a sentence that names the place. Empty for a sound file.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the facts about the process, in the order in which they were written.
    pub fn facts(&self) -> Vec<(String, String)> {
        let Some(part) = self.parts.get(PartKind::Facts) else {
            return Vec::new();
        };
        let room = part.length.saturating_sub(facts::TEXT as u64);
        let committed = self
            .bytes
            .u64(part.offset + facts::COMMITTED as u64)
            .unwrap_or(0)
            .min(room);
        let text = self
            .bytes
            .to_vec(part.offset + facts::TEXT as u64, committed);
        let text = String::from_utf8_lossy(&text);
        let pair = |line: &str| {
            line.split_once('\t')
                .map(|(key, value)| (unescaped(key), unescaped(value)))
        };
        text.lines().filter_map(pair).collect()
    }

    /// Returns the offset of the control part, if that is whole.
    pub(crate) fn control_at(&self) -> Option<u64> {
        let part = self.parts.get(PartKind::Control)?;
        (part.length >= control::BYTES as u64).then_some(part.offset)
    }

    /// Returns the part with the facts, if there is one.
    pub(crate) fn facts_at(&self) -> Option<header::Part> {
        self.parts.get(PartKind::Facts)
    }

    /// Returns the first fact of a key.
    pub fn fact(&self, key: &str) -> Option<String> {
        self.facts()
            .into_iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// Returns the number of facts that did not fit into the file.
    pub fn facts_cut(&self) -> u64 {
        let part = self.parts.get(PartKind::Facts);
        part.and_then(|part| self.bytes.u64(part.offset + facts::CUT as u64))
            .unwrap_or(0)
    }

    /// Returns the readable events, in the order of their times. Events of one thread are in the
    /// order in which it recorded them.
    ///
    /// If the process is still running, these are the events present at [`Trace::open`], without
    /// the ones overwritten since.
    pub fn events(&self) -> Events<'_> {
        Events::new(self, None)
    }

    /// Returns the course of memory over the whole run. It is made of the timeline that the process
    /// kept and the events after it. Without such a timeline it is made of the readable events.
    ///
    /// ```
    /// use gpushim_trace::{Class, Event, Kind, Series, Trace, Writer, WriterOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("run.trace");
    /// let writer = Writer::create(&path, &WriterOptions::default())?;
    /// let block = Event { device: 0, address: 0x1000, size: 4096, ..Event::new(Kind::Alloc, Class::Device) };
    /// writer.record_alloc(&block);
    /// writer.record_free(&Event { kind: Kind::Free, ..block });
    ///
    /// let timeline = Trace::open(&path)?.timeline();
    /// let device = timeline.devices.first().ok_or("one device was used")?;
    /// let peak = device.get(Series::Requested).iter().map(|span| span.max).max();
    /// assert_eq!(peak, Some(4096));
    /// # Ok(())
    /// # }
    /// ```
    pub fn timeline(&self) -> Timeline {
        let part = self.parts.get(PartKind::Timeline).and_then(|part| {
            let held = self.bytes.available(part.offset, part.length);
            let (words, ledger) = Ledger::resume(held)?;
            let is_whole = held.len() >= words.len();
            Some((words, ledger, is_whole))
        });
        let (turns, chunks) = self.ring.turns(&self.bytes, &self.parts);
        let clock = self.header.clock;
        let (words, mut ledger, after, is_complete) = match part {
            Some((words, ledger, is_whole)) => {
                let reaches = turns.saturating_sub(ledger.turns()) <= chunks || self.lost() == 0;
                let after = ledger.upto();
                (words, ledger, Some(after), is_whole && reaches)
            }
            None => {
                let words = Ledger::words();
                let ledger = Ledger::create(&words, clock.start.ticks);
                (words, ledger, None, self.lost() == 0)
            }
        };
        let mut events = Events::new(self, after);
        while let Some(found) = events.next_found() {
            if after.is_none_or(|after| found.ticks > after) {
                ledger.feed(&words, found.ticks, &found.event);
            }
        }
        ledger.timeline(&words, clock, is_complete)
    }

    /// Returns the number of events that were recorded, readable or not.
    pub fn recorded(&self) -> u64 {
        // The spool of a running process may have events recorded after the scan of the ring.
        let seen = self.readable().saturating_add(self.ring.torn);
        self.ring.recorded.max(seen)
    }

    /// Returns the number of readable events, of the ring and the spool.
    pub fn readable(&self) -> u64 {
        self.ring.readable.saturating_add(self.spooled())
    }

    /// Returns the number of readable events that are in the spool.
    pub fn spooled(&self) -> u64 {
        self.spool.as_ref().map_or(0, |spool| spool.events)
    }

    /// Returns the number of lost events, exactly: `recorded = readable + lost + torn`. These are
    /// the events that were:
    ///
    /// - overwritten by newer ones;
    /// - dropped ([`Trace::dropped`]);
    /// - beyond the end of a truncated file.
    pub fn lost(&self) -> u64 {
        self.recorded()
            .saturating_sub(self.readable())
            .saturating_sub(self.ring.torn)
    }

    /// Returns the number of events that were being written when the process ended or the file was
    /// opened.
    pub fn torn(&self) -> u64 {
        self.ring.torn
    }

    /// Returns the number of lost events that were dropped, because other threads held every chunk
    /// tried.
    pub fn dropped(&self) -> u64 {
        self.ring.dropped
    }

    /// True if newer events have overwritten older ones that are not in the spool.
    pub fn has_wrapped(&self) -> bool {
        self.ring.wrapped && (self.spooled() == 0 || self.lost() > self.dropped())
    }

    /// Returns the number of events that the ring has room for.
    pub fn capacity(&self) -> u64 {
        self.ring.capacity
    }
}

pub use tables::{Cut, Stack};

#[cfg(test)]
mod tests;
