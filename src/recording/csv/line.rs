//! From the lines of a log to what they ask for. Nothing here knows of other lines: blocks of them are read at the same time.

use std::borrow::Cow;

use memchr::memchr_iter;

use super::blocks::LINE_MAX;
use super::number::number;
use crate::error::{Error, Result, failed};
use crate::recording::csv::{Action, COLUMNS, Dialect};
use gpushim_trace::Class;

/// A request as its line has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub ns: u64,
    pub address: u64,
    pub size: u64,
    /// 0 where the line has none.
    pub stream: u64,
    pub thread: u32,
    pub action: Action,
    pub class: Class,
}

/// What a block of lines has.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub requests: Vec<Line>,
    /// Lines that make no sense: which of the block's, from 1, and what is wrong.
    pub faults: Vec<(u64, Error)>,
    /// How many lines there are.
    pub lines: u64,
}

impl Batch {
    /// Of whole lines. The first line of a log says which columns there are.
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
        // What comes after the last line break is a line where there is something.
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

/// Which column of a log has which field.
#[derive(Clone, Debug)]
pub(super) struct Columns {
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

/// The request of a line, if it is one; the first line says which columns there are.
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
        // A number that is too large for a thread is told from others by what is left of it.
        thread: number(thread).map_or(0, |thread| thread as u32),
        action,
        class,
    }))
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
