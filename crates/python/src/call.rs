//! One function on the stack.

use crate::layout::{self, Layout};
use crate::memory::Memory;

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
    /// the key has the addresses of name, file and table of lines, the first line, the hash and the length of the name,
    /// and the length and the first bytes of the table. Another place has the same key only if a code object with the
    /// same name, file and first line came to lie, in all of its parts, where a freed one lay, and its table differs
    /// further on only: a function that is compiled again and again with a body that changes. It would then be shown
    /// with a wrong line, nothing worse.
    #[inline]
    pub fn key(&self, memory: &impl Memory, layout: &Layout) -> Option<[u64; KEY]> {
        let word = |at: u64| memory.word(self.code.wrapping_add(at));
        let first_line = memory.number(self.code.wrapping_add(layout.first_line))?;
        let place =
            u64::from(self.offset.cast_unsigned()) << 32 | u64::from(first_line.cast_unsigned());
        let (name, lines) = (word(layout.name)?, word(layout.lines)?);
        let of_version = match layout.version {
            Some(at) => memory.number(self.code.wrapping_add(at))?,
            None => 0,
        };
        let content = match of_version {
            0 => content(memory, name, lines)?,
            number => u64::from(number.cast_unsigned()),
        };
        let parts = name ^ word(layout.file)?.rotate_left(21) ^ lines.rotate_left(42);
        Some([self.code, place, parts, content])
    }
}

/// A number that depends on what a name and a table say.
#[inline]
fn content(memory: &impl Memory, name: u64, lines: u64) -> Option<u64> {
    let word = |at: u64, offset: u64| memory.word(at.wrapping_add(offset));
    let hash = word(name, layout::TEXT_HASH)?;
    let lengths = word(name, layout::TEXT_LENGTH)? ^ word(lines, layout::SIZE)?.rotate_left(32);
    // The table is at least a byte, and objects are whole words.
    let table = word(lines, layout::BYTES)?;
    Some((hash ^ lengths).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ table)
}
