//! Texts of Python as UTF-8.

use crate::layout::{self, Layout};
use crate::memory::Memory;
use crate::symbols::Types;

/// Text, cut off after [`Text::ROOM`] bytes.
pub struct Text {
    bytes: [u8; Text::ROOM],
    length: usize,
}

impl Text {
    /// Largest number of bytes of a text: more than a trace keeps of it, so that the trace marks it
    /// as cut off.
    pub const ROOM: usize = 4_200;

    /// Returns a text without letters.
    pub const fn new() -> Text {
        Text {
            bytes: [0; Text::ROOM],
            length: 0,
        }
    }

    /// Returns the text as UTF-8.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        // Only whole letters are in the bytes.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Adds a letter; false if there is no room.
    fn push(&mut self, letter: char) -> bool {
        let Some(room) = self.bytes.get_mut(self.length..) else {
            return false;
        };
        if room.len() < letter.len_utf8() {
            return false;
        }
        self.length += letter.encode_utf8(room).len();
        true
    }

    /// Reads an object that is a `str`; `None` if it is another one.
    pub fn read(
        &mut self,
        memory: &impl Memory,
        layout: &Layout,
        types: &Types,
        object: u64,
    ) -> Option<()> {
        self.length = 0;
        if memory.word(object.wrapping_add(layout::TYPE))? != types.text {
            return None;
        }
        let count = memory.word(object.wrapping_add(layout::TEXT_LENGTH))?;
        let state = memory.number(object.wrapping_add(layout::TEXT_STATE))?;
        // Two bits of interning, three of bytes for each letter, then two flags.
        let (width, is_compact, is_ascii) =
            (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        if !is_compact {
            return None;
        }
        let width = usize::try_from(width)
            .ok()
            .filter(|width| matches!(width, 1 | 2 | 4))?;
        let head = if is_ascii {
            layout.ascii_head
        } else {
            layout.compact_head
        };
        let mut at = object.wrapping_add(head);
        let mut left = usize::try_from(count).ok()?.min(Text::ROOM);
        let mut piece = [0; 256];
        while left > 0 {
            let now = left.min(piece.len() / width);
            let read = piece.get_mut(..now * width)?;
            if !memory.read(at, read) {
                return None;
            }
            for letter in read.chunks_exact(width) {
                let code = letter
                    .iter()
                    .rev()
                    .fold(0, |code, byte| code << 8 | u32::from(*byte));
                // Half of a surrogate pair: a byte of a path that is no UTF-8.
                let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                if !self.push(letter) {
                    return Some(());
                }
            }
            at = at.wrapping_add((now * width) as u64);
            left -= now;
        }
        Some(())
    }
}

/// True if the letters of a text follow its head.
#[inline]
pub fn is_compact(memory: &impl Memory, object: u64) -> Option<bool> {
    let state = memory.number(object.wrapping_add(layout::TEXT_STATE))?;
    Some(state >> 5 & 1 == 1)
}

impl Default for Text {
    fn default() -> Text {
        Text::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::made::Made;

    const TYPES: Types = Types {
        code: 1,
        text: 0x1234,
        bytes: 3,
    };

    /// A `str` as an interpreter has it.
    fn object(text: &[u32], layout: &Layout) -> Vec<u8> {
        let most = text.iter().copied().max().unwrap_or(0);
        let width: u32 = match most {
            0..256 => 1,
            256..0x1_0000 => 2,
            _ => 4,
        };
        let is_ascii = most < 128;
        let head = if is_ascii {
            layout.ascii_head
        } else {
            layout.compact_head
        };
        let mut bytes = vec![0; head as usize];
        bytes[8..16].copy_from_slice(&0x1234_u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&(text.len() as u64).to_le_bytes());
        let state = 1 | width << 2 | 1 << 5 | u32::from(is_ascii) << 6;
        bytes[32..36].copy_from_slice(&state.to_le_bytes());
        for letter in text {
            bytes.extend(&letter.to_le_bytes()[..width as usize]);
        }
        bytes
    }

    fn read(bytes: &[u8], layout: &Layout) -> Option<String> {
        let mut memory = Made::default();
        let at = memory.put(bytes);
        let mut text = Text::new();
        text.read(&memory, layout, &TYPES, at)?;
        Some(text.as_str().to_string())
    }

    #[test]
    fn every_form_is_read() {
        for minor in 8..=12 {
            let layout = Layout::of(minor).expect("a layout");
            for text in [
                "",
                "f",
                "Model.forward",
                "vorwärts",
                "前へ.<locals>.λ",
                "𝒻(x)",
                &"ab".repeat(900),
            ] {
                let letters: Vec<u32> = text.chars().map(u32::from).collect();
                assert_eq!(
                    read(&object(&letters, &layout), &layout).as_deref(),
                    Some(text)
                );
            }
            let halves = [0x61, 0xdcff, 0x62];
            assert_eq!(
                read(&object(&halves, &layout), &layout).as_deref(),
                Some("a\u{fffd}b")
            );
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_letters() {
        let layout = Layout::of(12).expect("a layout");
        let long: Vec<u32> = std::iter::repeat_n(u32::from('前'), 5_000).collect();
        let text = read(&object(&long, &layout), &layout).expect("a text");
        assert_eq!(text.len(), Text::ROOM);
        assert!(text.chars().all(|letter| letter == '前'));
    }

    #[test]
    fn what_is_no_text_is_none() {
        let layout = Layout::of(12).expect("a layout");
        let sound = object(&[0x61, 0x62], &layout);
        for (at, byte) in [(8, 0x35), (32, 0x40 | 1 << 2), (32, 0x60 | 3 << 2)] {
            let mut other = sound.clone();
            other[at] = byte;
            assert_eq!(read(&other, &layout), None, "{at}");
        }
        assert_eq!(read(&sound[..sound.len() - 1], &layout), None);
    }
}
