//! Requests from the lines of a log. Nothing here depends on other lines.

use super::lines::LINE_MAX;
use crate::csv::{Action, COLUMNS, Dialect};
use crate::error::{Result, failed};
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

/// The place of each column among the fields of a line, in the order of [`Dialect::columns`].
pub(super) type Columns = [Option<usize>; COLUMNS];

/// Parses the request of a line, if it is one; the first line sets the columns.
pub(super) fn line(
    text: &[u8],
    dialect: &'static Dialect,
    columns: &mut Option<Columns>,
) -> Result<Option<Line>> {
    if text.len() >= LINE_MAX {
        return Err(failed!("is too long for a line of such a log"));
    }
    let text = std::str::from_utf8(text).map_err(|_| failed!("is not text"))?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let Some(columns) = columns else {
        *columns = Some(dialect.places(text));
        return Ok(None);
    };
    let mut fields = [""; COLUMNS];
    for (place, part) in text.split(',').enumerate() {
        let column = columns.iter().position(|column| *column == Some(place));
        if let Some(field) = column.and_then(|column| fields.get_mut(column)) {
            *field = part.trim();
        }
    }
    let [action, address, size, stream, thread, time] = fields;
    let mut actions = dialect.actions.iter();
    let action = actions
        .find(|(word, _)| word.eq_ignore_ascii_case(action))
        .map(|(_, action)| *action)
        .ok_or_else(|| failed!("has the unknown action {action:?}"))?;
    let address = number(address).ok_or_else(|| failed!("has no address: {address:?}"))?;
    let size = number(size).ok_or_else(|| failed!("has no size: {size:?}"))?;
    let ns = (dialect.time)(time).ok_or_else(|| failed!("has no time: {time:?}"))?;
    let stream = match stream {
        "" | "-" => None,
        stream => {
            let handle = number(stream);
            Some(handle.ok_or_else(|| failed!("has no stream: {stream:?}"))?)
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

/// Parses a number, decimal or hexadecimal; `(nil)` is C's output for a null pointer.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text == "(nil)" => Some(0),
        None => text.parse().ok(),
    }
}
