//! One function on the stack.

use crate::layout::{self, Layout};
use crate::memory::Memory;
use crate::text;

/// Code object, and its current instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Address of the code object.
    pub code: u64,
    /// Offset of the instruction from the first one, bytes; −1 before it.
    pub offset: i32,
}

/// Number of words of a [`Call::key`].
pub const KEY: usize = 4;

impl Call {
    /// Returns a key that distinguishes this place from every other, as long as the process lives.
    ///
    /// A code object may be freed and another one be made at its address, so the address alone is
    /// not enough. From 3.12 on a code object has a unique number, until four thousand million were
    /// made. Before, and after that, the key has:
    ///
    /// - the addresses of all parts and the first line;
    /// - hash and length of the name;
    /// - hash, length and end of the file's path;
    /// - length, beginning and end of the table of lines.
    ///
    /// Another place has the same key only in one case. A function with the same name, file and
    /// first line is compiled again, and all its parts lie where the freed ones lay. Only the
    /// middle of its table differs. The place is then shown with a wrong line.
    #[inline]
    pub fn key(&self, memory: &impl Memory, layout: &Layout) -> Option<[u64; KEY]> {
        let word = |at: u64| memory.word(self.code.wrapping_add(at));
        let first_line = memory.number(self.code.wrapping_add(layout.first_line))?;
        let place =
            u64::from(self.offset.cast_unsigned()) << 32 | u64::from(first_line.cast_unsigned());
        if let Some(at) = layout.version {
            let number = memory.number(self.code.wrapping_add(at))?;
            if number != 0 {
                // Each interpreter counts for itself. All of these words are in one cache line.
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

/// Returns a hash of the content of name, file and table.
#[inline]
fn content(memory: &impl Memory, layout: &Layout, [name, file, lines]: [u64; 3]) -> Option<u64> {
    let word = |at: u64, offset: u64| memory.word(at.wrapping_add(offset));
    let mut sum = word(name, layout::TEXT_HASH)?;
    let mut add = |value: u64| sum = (sum.rotate_left(27) ^ value).wrapping_mul(FACTOR);
    add(word(name, layout::TEXT_LENGTH)?);
    add(word(file, layout::TEXT_HASH)?);
    let letters = word(file, layout::TEXT_LENGTH)?;
    add(letters);
    // A letter takes at least a byte, so this is within the text, wherever its letters begin.
    if letters > 0 && text::is_compact(memory, file)? {
        add(word(
            file,
            layout.ascii_head.wrapping_add(last_word(letters)),
        )?);
    }
    let length = word(lines, layout::SIZE)?;
    add(length);
    // Objects consist of whole words.
    if length > 0 {
        add(word(lines, layout::BYTES)?);
        add(word(lines, layout::BYTES.wrapping_add(last_word(length)))?);
    }
    Some(sum)
}

/// Bits of the golden ratio: each bit of a product depends on all lower bits of the number.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the offset of the last byte of a table of this size, rounded down to a whole word.
fn last_word(bytes: u64) -> u64 {
    bytes.wrapping_sub(1) & !7
}
