//! The strings part: texts that events and other parts refer to, each kept once.
//!
//! Texts are appended. The length of one is written last, with a mark, so that a text is there whole or
//! not at all, and a text has its id only when it is there.

use std::sync::atomic::Ordering;

use super::index::{Index, mix};
use super::ring::Word;
use super::space::Room;
use crate::text::cut_to;

#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;

/// Words within the part, which is all of words.
pub mod layout {
    /// Word: bytes of the part that were handed out, the first [`FIRST`] words not among them. More than
    /// fit once it is full.
    pub const RESERVED: usize = 0;
    /// Word: texts that did not fit.
    pub const CUT: usize = 1;
    /// The first text; its index is its id. It begins with a word, [`COMMITTED`] and its bytes as a number, and goes on
    /// with that many bytes, filled up to whole words with zeros.
    pub const FIRST: usize = 8;
    /// Set in the first word of a text that is complete.
    pub const COMMITTED: u64 = 1 << 63;
    /// The longest text, bytes; of a longer one the rest is replaced by `…`.
    pub const TEXT_MAX: usize = 4096;
}

/// The strings part and an index of it.
#[derive(Debug)]
pub struct Strings<'a, W> {
    words: &'a [W],
    index: Index<W>,
    room: Room,
}

impl<'a, W: Word> Strings<'a, W> {
    /// Over the words of the part, which are zero.
    pub fn new(words: &'a [W], index: Index<W>) -> Strings<'a, W> {
        Strings {
            words,
            index,
            room: Room::default(),
        }
    }

    /// In a file that grows.
    pub fn within(self, room: Room) -> Strings<'a, W> {
        Strings { room, ..self }
    }

    /// The id of a text, the same each time, except that of two threads that add a text at once one writes a copy that
    /// no id refers to. 0 for a text that no longer fits, which is counted.
    pub fn intern(&self, text: &str) -> u32 {
        let (text, more) = shortened(text);
        let same = |id| self.holds(id, text, more);
        let found = self
            .index
            .find_or_add(hash(text, more), same, || self.append(text, more));
        found.unwrap_or_else(|| {
            if let Some(cut) = self.words.get(layout::CUT) {
                cut.fetch_add(1, Ordering::Relaxed);
            }
            0
        })
    }

    fn append(&self, text: &str, more: &str) -> Option<u32> {
        let length = text.len() + more.len();
        let needed = 1 + length.div_ceil(8);
        let reserved = self.words.get(layout::RESERVED)?;
        let fits = |bytes: u64| {
            let first = usize::try_from(bytes / 8).ok()? + layout::FIRST;
            let is_within = first.checked_add(needed)? <= self.words.len();
            (is_within && self.room.has(first * 8, needed * 8)).then_some(first)
        };
        // Looked at first, so that what can never fit is not handed out again and again.
        fits(reserved.load(Ordering::Relaxed))?;
        // Only the place itself must belong to no other thread.
        let first = fits(reserved.fetch_add(needed as u64 * 8, Ordering::Relaxed))?;
        let id = u32::try_from(first).ok()?;
        let (head, body) = self.words.get(first..first + needed)?.split_first()?;
        for (word, value) in body.iter().zip(packed(text, more)) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: a reader that sees the length sees the text.
        head.store(layout::COMMITTED | length as u64, Ordering::Release);
        Some(id)
    }

    fn holds(&self, id: u32, text: &str, more: &str) -> bool {
        let Some((length, words)) = entry(self.words, id) else {
            return false;
        };
        let equal = |(word, value): (&W, u64)| word.load(Ordering::Relaxed) == value;
        length == text.len() + more.len() && words.iter().zip(packed(text, more)).all(equal)
    }
}

/// The text of an id, `None` where there is none; never trusts what is in the words.
pub fn text<W: Word>(words: &[W], id: u32) -> Option<String> {
    let (length, words) = entry(words, id)?;
    let mut bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .collect();
    bytes.truncate(length);
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|damaged| String::from_utf8_lossy(damaged.as_bytes()).into_owned()),
    )
}

/// The length of a complete text, and its words.
fn entry<W: Word>(words: &[W], id: u32) -> Option<(usize, &[W])> {
    let first = usize::try_from(id).ok().filter(|id| *id >= layout::FIRST)?;
    // Acquire: the text is what it was when its length was written.
    let head = words.get(first)?.load(Ordering::Acquire);
    let length = usize::try_from(head ^ layout::COMMITTED).ok()?;
    if length > layout::TEXT_MAX {
        return None;
    }
    let body = words.get(first + 1..first + 1 + length.div_ceil(8))?;
    Some((length, body))
}

/// What is kept of a text: its start, and what stands for the rest.
fn shortened(text: &str) -> (&str, &'static str) {
    if text.len() <= layout::TEXT_MAX {
        return (text, "");
    }
    (cut_to(text, layout::TEXT_MAX - '…'.len_utf8()), "…")
}

/// The bytes of one text after the other, by eight, the last ones filled up with zeros.
fn packed<'t>(text: &'t str, more: &'t str) -> impl Iterator<Item = u64> + 't {
    let (text, more) = (text.as_bytes(), more.as_bytes());
    let byte = move |at: usize| match text.get(at) {
        Some(byte) => *byte,
        None => more.get(at - text.len()).copied().unwrap_or(0),
    };
    (0..text.len() + more.len()).step_by(8).map(move |at| {
        match text.get(at..at + 8).and_then(|eight| eight.try_into().ok()) {
            Some(eight) => u64::from_le_bytes(eight),
            None => u64::from_le_bytes(std::array::from_fn(|index| byte(at + index))),
        }
    })
}

fn hash(text: &str, more: &str) -> u64 {
    let length = (text.len() + more.len()) as u64;
    packed(text, more).fold(length, mix)
}
