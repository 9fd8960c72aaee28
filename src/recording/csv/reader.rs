//! One pass over a log: from lines to events.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use memchr::memchr;
use rustc_hash::FxHashMap;

use super::number::number;
use crate::error::{Error, Result, failed};
use crate::recording::csv::{Action, COLUMNS, Dialect};
use crate::recording::packed::Packed;
use gpushim_trace::{Class, Event, Kind, Record};

/// Bytes of a line beyond which it is none.
const LINE_MAX: u64 = 4096;
/// How many bad lines are named one by one.
const NAMED: usize = 20;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: i16 = 2;

/// A file read from its beginning, wherever others are in it.
struct From0(Arc<File>, u64);

impl Read for From0 {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read_at(buffer, self.1)?;
        self.1 += count as u64;
        Ok(count)
    }
}

/// The problems of a log.
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

    /// The problems as sentences.
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

/// Which column of a log has which field.
struct Columns {
    /// For each column its field in the order of [`Dialect::columns`]; others have [`COLUMNS`].
    fields: Vec<usize>,
}

impl Columns {
    /// Of the column of each field.
    fn of(places: [Option<usize>; COLUMNS]) -> Columns {
        let mut fields = Vec::new();
        for (field, place) in places.into_iter().enumerate() {
            let Some(place) = place else { continue };
            if fields.len() <= place {
                fields.resize(place + 1, COLUMNS);
            }
            if let Some(there) = fields.get_mut(place) {
                *there = field;
            }
        }
        Columns { fields }
    }

    /// The fields of a line, without white space around them; empty where it ends before.
    fn fields<'a>(&self, text: &'a [u8]) -> [&'a [u8]; COLUMNS] {
        let mut fields = [&b""[..]; COLUMNS];
        for (part, field) in text.split(|byte| *byte == b',').zip(&self.fields) {
            if let Some(field) = fields.get_mut(*field) {
                *field = trimmed(part);
            }
        }
        fields
    }
}

/// One pass over a log.
pub(super) struct Reader {
    input: Box<dyn BufRead + Send>,
    dialect: &'static Dialect,
    columns: Option<Columns>,
    line: u64,
    text: Vec<u8>,
    /// Bytes and class of the live blocks: frees in some logs lack them.
    live: FxHashMap<u64, (u64, Class)>,
    first: Option<u64>,
    last: u64,
    laps: u64,
    /// The time as the line before said it.
    said: u64,
    ticket: u64,
    /// The problems so far.
    pub(super) faults: Faults,
}

/// A line's request.
struct Parsed {
    action: Action,
    /// As the line says it.
    ns: u64,
    event: Event,
}

impl Iterator for Reader {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            self.line += 1;
            let there = match self.input.fill_buf() {
                Ok(there) => there.get(..LINE_MAX as usize).unwrap_or(there),
                Err(error) => return self.unreadable(&error),
            };
            // Mostly the whole line is in the buffer.
            let parsed = if let Some(end) = memchr(b'\n', there) {
                let text = there.get(..end).unwrap_or_default();
                let parsed = parse(text, self.dialect, &mut self.columns);
                self.input.consume(end + 1);
                parsed
            } else if self.read_line()? {
                parse(&self.text, self.dialect, &mut self.columns)
            } else {
                continue;
            };
            match parsed {
                Ok(Some(parsed)) => {
                    if let Some(event) = self.booked(parsed.action, parsed.event) {
                        return Some(self.timed(parsed.ns, event));
                    }
                }
                Ok(None) => {}
                Err(what) => self.faults.line(self.line, &what),
            }
        }
    }
}

impl Reader {
    /// A pass over a file from its beginning.
    pub(super) fn new(file: Arc<File>, is_gzip: bool, dialect: &'static Dialect) -> Reader {
        let length = file.metadata().map_or(0, |meta| meta.len());
        let plain = BufReader::with_capacity(1 << 16, From0(file, 0));
        let input: Box<dyn BufRead + Send> = if is_gzip {
            let unpacked = Packed::new(MultiGzDecoder::new(plain), length);
            Box::new(BufReader::with_capacity(1 << 16, unpacked))
        } else {
            Box::new(plain)
        };
        Reader {
            input,
            dialect,
            columns: None,
            line: 0,
            text: Vec::new(),
            live: FxHashMap::default(),
            first: None,
            last: 0,
            laps: 0,
            said: 0,
            ticket: 0,
            faults: Faults::default(),
        }
    }

    /// Takes the next line into `text`; `None` at the end, false if it is none.
    fn read_line(&mut self) -> Option<bool> {
        self.text.clear();
        let mut limited = self.input.by_ref().take(LINE_MAX);
        match limited.read_until(b'\n', &mut self.text) {
            Ok(0) => None,
            Ok(read) if read as u64 == LINE_MAX && self.text.last() != Some(&b'\n') => {
                self.faults
                    .line(self.line, &failed!("is too long for a line of such a log"));
                self.skip_line()
            }
            Ok(_) => Some(true),
            Err(error) => self.unreadable(&error),
        }
    }

    fn unreadable<T>(&mut self, error: &io::Error) -> Option<T> {
        let what = format!("it cannot be read beyond line {}: {error}", self.line);
        self.faults.end.get_or_insert(what);
        None
    }

    fn skip_line(&mut self) -> Option<bool> {
        loop {
            self.text.clear();
            let mut limited = self.input.by_ref().take(LINE_MAX);
            match limited.read_until(b'\n', &mut self.text) {
                Ok(0) | Err(_) => return None,
                Ok(_) if self.text.last() == Some(&b'\n') => return Some(false),
                Ok(_) => {}
            }
        }
    }

    /// The event, with what is known of its block; `None` for one that does nothing.
    fn booked(&mut self, action: Action, event: Event) -> Option<Event> {
        match action {
            // A tracer that notes what the call returned has no pointer for a request that failed.
            Action::Alloc if event.address == 0 && event.size > 0 => {
                self.booked(Action::Failure, event)
            }
            Action::Alloc => {
                let block = (event.size, event.class);
                if self.live.insert(event.address, block).is_some() {
                    self.faults.doubled += 1;
                }
                Some(event)
            }
            Action::Free => {
                if event.address == 0 {
                    // Freeing no memory is allowed, and does nothing.
                    return None;
                }
                let known = self.live.remove(&event.address);
                self.faults.unmatched += u64::from(known.is_none());
                let (size, class) = known.unwrap_or((event.size, event.class));
                Some(Event {
                    kind: Kind::Free,
                    size,
                    class,
                    ..event
                })
            }
            Action::Failure => Some(Event {
                kind: Kind::OutOfMemory,
                result: OUT_OF_MEMORY,
                address: 0,
                extra: [0; 2],
                ..event
            }),
        }
    }

    fn timed(&mut self, ns: u64, event: Event) -> Record {
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
        let ticket = self.ticket;
        self.ticket += 1;
        Record {
            ticket,
            ns: self.last,
            event,
        }
    }
}

/// The request of a line, if it is one; the first line says which columns there are.
fn parse(
    text: &[u8],
    dialect: &'static Dialect,
    columns: &mut Option<Columns>,
) -> Result<Option<Parsed>> {
    let is_text = text.is_ascii() || std::str::from_utf8(text).is_ok();
    if !is_text {
        return Err(failed!("is not text"));
    }
    let text = trimmed(text);
    if text.is_empty() {
        return Ok(None);
    }
    let Some(columns) = columns else {
        *columns = Some(Columns::of(dialect.places(&shown(text))));
        return Ok(None);
    };
    let [action, address, size, stream, thread, time] = columns.fields(text);
    let mut actions = dialect.actions.iter();
    let action = actions
        .find(|(word, _)| word.as_bytes().eq_ignore_ascii_case(action))
        .map(|(_, action)| *action)
        .ok_or_else(|| failed!("has the unknown action {:?}", shown(action)))?;
    let address = number(address).ok_or_else(|| failed!("has no address: {:?}", shown(address)))?;
    let size = number(size).ok_or_else(|| failed!("has no size: {:?}", shown(size)))?;
    let ns = (dialect.time)(time).ok_or_else(|| failed!("has no time: {:?}", shown(time)))?;
    let stream = match stream {
        b"" | b"-" => None,
        stream => {
            let handle = number(stream);
            Some(handle.ok_or_else(|| failed!("has no stream: {:?}", shown(stream)))?)
        }
    };
    let class = match stream {
        Some(_) => Class::PoolAsync,
        None => dialect.without_stream,
    };
    let event = Event {
        // A number that is too large for a thread is told from others by what is left of it.
        thread: number(thread).map_or(0, |thread| thread as u32),
        // Such a log is of one memory resource, and so of one device; which, it does not say.
        device: 0,
        address,
        size,
        extra: [stream.unwrap_or(0), 0],
        ..Event::new(Kind::Alloc, class)
    };
    Ok(Some(Parsed { action, ns, event }))
}

/// Text for people.
fn shown(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// Without white space at both ends, of which there is mostly none.
fn trimmed(text: &[u8]) -> &[u8] {
    let is_plain = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_graphic);
    if is_plain(text.first()) && is_plain(text.last()) {
        return text;
    }
    std::str::from_utf8(text).map_or(text, |text| text.trim().as_bytes())
}
