//! Requests from the lines of a log. Nothing here depends on other lines: blocks of them are read
//! at the same time.

use std::borrow::Cow;

use memchr::memchr_iter;

use super::blocks::LINE_MAX;
use super::number::number;
use crate::csv::{Action, COLUMNS, Dialect};
use crate::error::{Error, Result, failed};
use gpushim_trace::Class;

/// A request as its line has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub ns: u64,
    pub address: u64,
    pub size: u64,
    /// The stream; 0 if the line has none.
    pub stream: u64,
    pub thread: u32,
    pub action: Action,
    pub class: Class,
}

/// Requests and faults of a block of lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub requests: Vec<Line>,
    /// Malformed lines: the number in the block, from 1, and the error.
    pub faults: Vec<(u64, Error)>,
    /// Number of lines in the block.
    pub lines: u64,
}

impl Batch {
    /// Parses whole lines. The first line of a log sets the columns.
    pub(super) fn of(
        block: &[u8],
        dialect: &'static Dialect,
        columns: &mut Option<Columns>,
    ) -> Batch {
        let is_ascii = block.is_ascii();
        let mut batch = Batch {
            requests: Vec::with_capacity(block.len() / SHORT),
            ..Batch::default()
        };
        let mut begin = 0;
        let ends = memchr_iter(b'\n', block);
        // Text after the last line break is a line, if there is any.
        let last = Some(block.len()).filter(|_| block.last().is_some_and(|byte| *byte != b'\n'));
        for end in ends.chain(last) {
            let text = block.get(begin..end).unwrap_or_default();
            begin = end + 1;
            batch.lines += 1;
            match line(text, is_ascii, dialect, columns) {
                Ok(Some(request)) => batch.requests.push(request),
                Ok(None) => {}
                Err(what) => batch.faults.push((batch.lines, what)),
            }
        }
        batch
    }
}

/// Bytes of a short line of a request.
const SHORT: usize = 32;

/// The field of each column of a log.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    /// Field of each column in the order of [`Dialect::columns`]; [`COLUMNS`] for other columns.
    fields: Vec<usize>,
}

impl Columns {
    /// Takes the column of each field.
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

    /// Returns the fields of a line, without white space around them; empty beyond its end.
    ///
    /// A quotation mark is a character like any other: one in a damaged line must not hide the lines
    /// after it.
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

/// Parses the request of a line, if it is one; the first line sets the columns.
fn line(
    text: &[u8],
    is_ascii: bool,
    dialect: &'static Dialect,
    columns: &mut Option<Columns>,
) -> Result<Option<Line>> {
    if text.len() >= LINE_MAX {
        return Err(failed!("is too long for a line of such a log"));
    }
    let is_text = is_ascii || std::str::from_utf8(text).is_ok();
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
    Ok(Some(Line {
        ns,
        address,
        size,
        stream: stream.unwrap_or(0),
        // The low bits of a number that is too large for a thread still distinguish it from others.
        thread: number(thread).map_or(0, |thread| thread as u32),
        action,
        class,
    }))
}

/// Returns the text for people.
fn shown(text: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(text)
}

/// Cuts white space at both ends; most fields have none.
fn trimmed(text: &[u8]) -> &[u8] {
    let is_plain = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_graphic);
    if is_plain(text.first()) && is_plain(text.last()) {
        return text;
    }
    std::str::from_utf8(text).map_or(text, |text| text.trim().as_bytes())
}
