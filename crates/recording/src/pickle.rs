//! Python's pickles, as far as they hold data: the values, and none of the calls.
//!
//! A pickle is a program for a machine with a stack. The instructions that make numbers, texts,
//! lists, tuples and dicts are known here; the ones that import or call anything are refused, by
//! name. Values lie in one arena and refer to each other by index. So sharing costs nothing, a list
//! may hold itself, and nothing recurses.
//!
//! Format: Python's documentation of `pickletools`, protocols 2 to 5.

use crate::error::Result;

mod machine;
#[cfg(test)]
mod tests;

use machine::{Machine, PROTO, Stop};

/// A value; a value with parts has their place in the arena of its [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The value `None` of Python.
    None,
    /// A truth value of Python.
    Bool(bool),
    /// An integer that fits 64 bits.
    Int(i64),
    /// An integer that does not fit 64 bits.
    Large,
    /// A floating-point number.
    Float(f64),
    /// A text, by its place in the file.
    Text {
        /// Offset of its first byte.
        at: usize,
        /// Number of the text's bytes.
        length: u32,
    },
    /// Bytes, whose content is not kept.
    Bytes,
    /// A list, by its place in the arena.
    List(u32),
    /// A tuple, by its place in the arena.
    Tuple(u32),
    /// A dict: keys and values in turn.
    Dict(u32),
    /// The beginning of the parts of a value; on the stack only.
    Mark,
}

/// Bytes of a text beyond which the rest is left out.
pub const TEXT_MAX: usize = 4096;

/// The content of a pickle.
#[derive(Debug)]
pub struct Pickle<'a> {
    bytes: &'a [u8],
    arena: Vec<Vec<Value>>,
    /// The value of the whole pickle.
    pub root: Value,
    /// The error that ended the reading; the values before it are there.
    pub problem: Option<String>,
}

impl<'a> Pickle<'a> {
    /// Returns true if bytes begin like a pickle.
    pub fn is_one(head: &[u8]) -> bool {
        matches!(head, [PROTO, 2..=5, ..])
    }

    /// Reads a pickle. Of a pickle that is cut off or damaged, the values before the damage are
    /// returned.
    ///
    /// # Errors
    /// It asks for code, or for more memory than a file of its length may need.
    pub fn read(bytes: &'a [u8]) -> Result<Pickle<'a>> {
        let mut machine = Machine::new(bytes);
        let problem = match machine.run() {
            Ok(()) => None,
            Err(Stop::Refused(refused)) => return Err(refused),
            Err(Stop::Damaged(what)) => {
                machine.close();
                Some(what)
            }
        };
        Ok(Pickle {
            bytes,
            root: machine.stack.last().copied().unwrap_or(Value::None),
            arena: machine.arena,
            problem,
        })
    }

    /// Returns the elements of a list or tuple; none of other values.
    pub fn items(&self, value: Value) -> &[Value] {
        match value {
            Value::List(index) | Value::Tuple(index) => self.parts(index),
            _ => &[],
        }
    }

    /// Returns the keys and values of a dict, in their order; none of other values.
    pub fn entries(&self, value: Value) -> impl Iterator<Item = (Value, Value)> {
        let parts = match value {
            Value::Dict(index) => self.parts(index),
            _ => &[],
        };
        parts.chunks_exact(2).filter_map(|pair| match pair {
            [key, value] => Some((*key, *value)),
            _ => None,
        })
    }

    /// Returns the value of a key. Only the first few hundred keys are examined: the dicts that are
    /// read here have fewer.
    pub fn get(&self, dict: Value, key: &str) -> Option<Value> {
        const LOOKED_AT: usize = 256;
        let mut entries = self.entries(dict).take(LOOKED_AT);
        let found = entries.find(|(name, _)| self.raw(*name) == Some(key.as_bytes()));
        found.map(|(_, value)| value)
    }

    /// Returns a text; of a longer one the first [`TEXT_MAX`] bytes, and a mark that there is more.
    pub fn text(&self, value: Value) -> Option<String> {
        let bytes = self.raw(value)?;
        if bytes.len() <= TEXT_MAX {
            return Some(String::from_utf8_lossy(bytes).into_owned());
        }
        // A letter, which has up to four bytes, is not cut.
        let begins_letter = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80);
        let end = (TEXT_MAX - 3..=TEXT_MAX).rev().find(begins_letter);
        let head = bytes.get(..end.unwrap_or(TEXT_MAX)).unwrap_or_default();
        Some(format!("{}…", String::from_utf8_lossy(head)))
    }

    /// Returns true if it is this text. Nothing is copied.
    pub fn is_text(&self, value: Value, text: &str) -> bool {
        self.raw(value) == Some(text.as_bytes())
    }

    /// Returns a number from 0 upwards.
    pub fn number(&self, value: Value) -> Option<u64> {
        match value {
            Value::Int(number) => u64::try_from(number).ok(),
            Value::Bool(is) => Some(is.into()),
            // The cast saturates.
            Value::Float(number) if number >= 0.0 => Some(number as u64),
            _ => None,
        }
    }

    fn raw(&self, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text { at, length } => self.bytes.get(at..at.checked_add(length as usize)?),
            _ => None,
        }
    }

    fn parts(&self, index: u32) -> &[Value] {
        self.arena.get(index as usize).map_or(&[], Vec::as_slice)
    }
}
