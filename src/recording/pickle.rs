//! Python's pickles, as far as they hold data: what they say, and nothing of what they ask to be done.
//!
//! A pickle is a program for a machine with a stack. Of its instructions those are known here that make
//! numbers, texts, lists, tuples and dicts; those that import or call anything are refused, by name.
//! Values lie in one arena and refer to each other by index, so that sharing costs nothing, a list may
//! hold itself, and nothing recurses. Format: Python's documentation of `pickletools`, protocols 2 to 5.

use crate::error::Result;

mod machine;
#[cfg(test)]
mod tests;

use machine::{Machine, PROTO, Stop};

/// A value; what has parts names its place in the arena of its [`Pickle`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer that fits.
    Int(i64),
    /// An integer that does not.
    Large,
    /// A floating-point number.
    Float(f64),
    /// A text: where it lies in the file.
    Text {
        /// Its first byte.
        at: usize,
        /// Its bytes.
        length: u32,
    },
    /// Bytes, of which nothing is kept.
    Bytes,
    /// A list.
    List(u32),
    /// A tuple.
    Tuple(u32),
    /// A dict: keys and values in turn.
    Dict(u32),
    /// On the stack only: where the parts of something begin.
    Mark,
}

/// Bytes of a text beyond which the rest is left out.
pub const TEXT_MAX: usize = 4096;

/// The content of a pickle.
#[derive(Debug)]
pub struct Pickle<'a> {
    bytes: &'a [u8],
    arena: Vec<Vec<Value>>,
    /// The value as a whole.
    pub root: Value,
    /// The error that ended the reading; the values before it are there.
    pub problem: Option<String>,
}

impl<'a> Pickle<'a> {
    /// Whether bytes begin as a pickle does.
    pub fn is_one(head: &[u8]) -> bool {
        matches!(head, [PROTO, 2..=5, ..])
    }

    /// Reads a pickle. One that is cut off or damaged gives what comes before the damage.
    ///
    /// # Errors
    /// It asks for code, or for more memory than a file of its length has any right to.
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

    /// The elements of a list or tuple; none of anything else.
    pub fn items(&self, value: Value) -> &[Value] {
        match value {
            Value::List(index) | Value::Tuple(index) => self.parts(index),
            _ => &[],
        }
    }

    /// The keys and values of a dict, in their order; none of anything else.
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

    /// The value of a key. Keys beyond the first few hundred are not looked at: no dict of ours has them.
    pub fn get(&self, dict: Value, key: &str) -> Option<Value> {
        const LOOKED_AT: usize = 256;
        let mut entries = self.entries(dict).take(LOOKED_AT);
        let found = entries.find(|(name, _)| self.raw(*name) == Some(key.as_bytes()));
        found.map(|(_, value)| value)
    }

    /// A text; of a longer one the first [`TEXT_MAX`] bytes, and that there is more.
    pub fn text(&self, value: Value) -> Option<String> {
        let bytes = self.raw(value)?;
        if bytes.len() <= TEXT_MAX {
            return Some(String::from_utf8_lossy(bytes).into_owned());
        }
        // Not half a letter, of which there are four bytes at most.
        let begins_letter = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 != 0x80);
        let end = (TEXT_MAX - 3..=TEXT_MAX).rev().find(begins_letter);
        let head = bytes.get(..end.unwrap_or(TEXT_MAX)).unwrap_or_default();
        Some(format!("{}…", String::from_utf8_lossy(head)))
    }

    /// Whether it is this text. Nothing is copied.
    pub fn is_text(&self, value: Value, text: &str) -> bool {
        self.raw(value) == Some(text.as_bytes())
    }

    /// Whether it is one of these texts: its place among them.
    pub fn which_text(&self, value: Value, texts: &[&str]) -> Option<usize> {
        let raw = self.raw(value)?;
        texts.iter().position(|text| raw == text.as_bytes())
    }

    /// A number from 0 on.
    pub fn number(&self, value: Value) -> Option<u64> {
        match value {
            Value::Int(number) => u64::try_from(number).ok(),
            Value::Bool(is) => Some(is.into()),
            // As far as it is one: the cast saturates.
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
