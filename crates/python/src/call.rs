//! One function on the stack.

use crate::layout::{self, Layout};
use crate::memory::Memory;
use crate::text;

/// A code object, and the instruction that it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// The address of the code object.
    pub code: u64,
    /// The instruction, bytes from the first one; −1 before it.
    pub offset: i32,
}

/// Numbers of a [`Call::key`].
pub const KEY: usize = 4;

impl Call {
    /// What tells this place from every other, as long as the process lives.
    ///
    /// A code object may be freed and another one be made at its address, so the address alone would not do. From 3.12 on
    /// a code object has a number that no other one gets, until four thousand million were made. Before, and after that,
    /// the key has, beside the addresses of all parts and the first line, what tells their content: hash and length of the
    /// name, hash, length and end of the file's path, length, beginning and end of the table of lines. Another place has
    /// the same key only if a function with the same name, file and first line is compiled again, all parts come to lie
    /// where those of the freed one lay, and only the middle of the table differs. It would then be shown with a wrong
    /// line, nothing worse.
    #[inline]
    pub fn key(&self, memory: &impl Memory, layout: &Layout) -> Option<[u64; KEY]> {
        let word = |at: u64| memory.word(self.code.wrapping_add(at));
        let first_line = memory.number(self.code.wrapping_add(layout.first_line))?;
        let place =
            u64::from(self.offset.cast_unsigned()) << 32 | u64::from(first_line.cast_unsigned());
        if let Some(at) = layout.version {
            let number = memory.number(self.code.wrapping_add(at))?;
            if number != 0 {
                // Each interpreter counts for itself. All of this is in one line of the cache.
                let number = u64::from(number.cast_unsigned());
                return Some([self.code, place, number, word(layout.file)?]);
            }
        }
        let [name, file, lines] = [word(layout.name)?, word(layout.file)?, word(layout.lines)?];
        let parts = name ^ file.rotate_left(21) ^ lines.rotate_left(42);
        let content = content(memory, layout, [name, file, lines])?;
        Some([self.code, place, parts, content])
    }
}

/// A number that depends on what name, file and table say.
#[inline]
fn content(memory: &impl Memory, layout: &Layout, [name, file, lines]: [u64; 3]) -> Option<u64> {
    let word = |at: u64, offset: u64| memory.word(at.wrapping_add(offset));
    let mut sum = word(name, layout::TEXT_HASH)?;
    let mut add = |value: u64| sum = (sum.rotate_left(27) ^ value).wrapping_mul(FACTOR);
    add(word(name, layout::TEXT_LENGTH)?);
    add(word(file, layout::TEXT_HASH)?);
    let letters = word(file, layout::TEXT_LENGTH)?;
    add(letters);
    // No letter takes less than a byte, so that this is within the text, wherever its letters begin.
    if letters > 0 && text::is_compact(memory, file)? {
        add(word(
            file,
            layout.ascii_head.wrapping_add(last_word(letters)),
        )?);
    }
    let length = word(lines, layout::SIZE)?;
    add(length);
    // Objects are whole words.
    if length > 0 {
        add(word(lines, layout::BYTES)?);
        add(word(lines, layout::BYTES.wrapping_add(last_word(length)))?);
    }
    Some(sum)
}

/// Bits of the golden ratio: what it is multiplied by depends on all lower bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The offset of the last word of a table of this size, rounded down to a whole word.
fn last_word(bytes: u64) -> u64 {
    bytes.wrapping_sub(1) & !7
}
