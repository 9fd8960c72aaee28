//! The strings part: texts that events and other parts refer to, each kept once.
//!
//! Texts are appended. The length of a text is written last, with a mark: a reader finds a text
//! complete or not at all. A text gets its id only when it is complete.

use std::sync::atomic::Ordering;

use super::index::{Index, mix};
use super::ring::Word;
use super::space::Room;
use crate::text::cut_to;

#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;

/// Words within the part, which consists of words.
pub mod layout {
    /// Word: bytes of the part that were handed out, without the first [`FIRST`] words. More than
    /// fit once it is full.
    pub const RESERVED: usize = 0;
    /// Word: number of texts that did not fit.
    pub const CUT: usize = 1;
    /// Index of the first text; the index of a text is its id. A text begins with a word:
    /// [`COMMITTED`] and its number of bytes. The bytes follow, padded to whole words with zeros.
    pub const FIRST: usize = 8;
    /// Bit in the first word of a text that is complete.
    pub const COMMITTED: u64 = 1 << 63;
    /// Longest text, bytes; the rest of a longer one is replaced by `…`.
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
    /// Returns strings over the words of the part, which are zero.
    pub fn new(words: &'a [W], index: Index<W>) -> Strings<'a, W> {
        Strings {
            words,
            index,
            room: Room::default(),
        }
    }

    /// Places the strings in a file that grows.
    pub fn within(self, room: Room) -> Strings<'a, W> {
        Strings { room, ..self }
    }

    /// Returns the id of a text. The id is the same each time, even if two threads add the text at
    /// once. One of them then writes a copy without an id. 0 for a text that does not fit, which is
    /// counted.
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
        // Checked first, so that a text that can never fit takes nothing again and again.
        fits(reserved.load(Ordering::Relaxed))?;
        // Only the place must belong to no other thread.
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

/// Returns the text of an id, `None` if there is none; never trusts the content of the words.
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

/// Returns the length of a complete text, and its words.
fn entry<W: Word>(words: &[W], id: u32) -> Option<(usize, &[W])> {
    let first = usize::try_from(id).ok().filter(|id| *id >= layout::FIRST)?;
    // Acquire: the text is as it was when its length was written.
    let head = words.get(first)?.load(Ordering::Acquire);
    let length = usize::try_from(head ^ layout::COMMITTED).ok()?;
    if length > layout::TEXT_MAX {
        return None;
    }
    let body = words.get(first + 1..first + 1 + length.div_ceil(8))?;
    Some((length, body))
}

/// Returns the kept start of a text, and the mark that replaces its rest.
fn shortened(text: &str) -> (&str, &'static str) {
    if text.len() <= layout::TEXT_MAX {
        return (text, "");
    }
    (cut_to(text, layout::TEXT_MAX - '…'.len_utf8()), "…")
}

/// Returns the bytes of one text after the other as words, the last one padded with zeros.
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
