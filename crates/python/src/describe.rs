//! Name, file and line of a call.

use crate::call::Call;
use crate::layout::{self, Layout};
use crate::lines::line_of;
use crate::memory::Memory;
use crate::symbols::Types;
use crate::text::Text;

/// Largest size of a table of lines, bytes: code of some million lines.
const TABLE_MOST: u64 = 1 << 26;
/// Largest number of lines of a file.
const LINES_MOST: i32 = 1 << 28;

impl Call {
    /// Passes the function's name to `take`, qualified from 3.11 on, and its file's as Python has
    /// it. Returns both results, and the line, 0 if the instruction has none. `None` if it is no
    /// function's code.
    pub fn describe<T>(
        &self,
        memory: &impl Memory,
        layout: &Layout,
        types: &Types,
        mut take: impl FnMut(&str) -> T,
    ) -> Option<(T, T, u32)> {
        let word = |at: u64| memory.word(self.code.wrapping_add(at));
        let line = self.line(memory, layout, types)?;
        // One text at a time: they are large, and the stack may be a signal handler's.
        let mut text = Text::new();
        text.read(memory, layout, types, word(layout.name)?)?;
        let name = take(text.as_str());
        text.read(memory, layout, types, word(layout.file)?)?;
        Some((name, take(text.as_str()), line))
    }

    fn line(&self, memory: &impl Memory, layout: &Layout, types: &Types) -> Option<u32> {
        let first_line = memory.number(self.code.wrapping_add(layout.first_line))?;
        let lines = memory.word(self.code.wrapping_add(layout.lines))?;
        let length = memory.word(lines.wrapping_add(layout::SIZE))?;
        let is_table = memory.word(lines.wrapping_add(layout::TYPE))? == types.bytes;
        if !is_table || length > TABLE_MOST || !(0..LINES_MOST).contains(&first_line) {
            return None;
        }
        let begin = lines.wrapping_add(layout::BYTES);
        let table = Bytes::new(memory, begin, begin.wrapping_add(length));
        Some(line_of(layout.table, table, first_line, self.offset).unwrap_or(0))
    }
}

/// Bytes of memory, read in pieces.
struct Bytes<'a, M> {
    memory: &'a M,
    /// Address of the next piece.
    at: u64,
    end: u64,
    piece: [u8; 128],
    next: usize,
    length: usize,
}

impl<'a, M: Memory> Bytes<'a, M> {
    fn new(memory: &'a M, at: u64, end: u64) -> Bytes<'a, M> {
        Bytes {
            memory,
            at,
            end,
            piece: [0; 128],
            next: 0,
            length: 0,
        }
    }
}

impl<M: Memory> Iterator for Bytes<'_, M> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.next == self.length {
            let left = usize::try_from(self.end.saturating_sub(self.at)).ok()?;
            self.length = left.min(self.piece.len());
            self.next = 0;
            let piece = self.piece.get_mut(..self.length)?;
            if piece.is_empty() || !self.memory.read(self.at, piece) {
                self.length = 0;
                return None;
            }
            self.at = self.at.wrapping_add(self.length as u64);
        }
        let byte = self.piece.get(self.next).copied();
        self.next += 1;
        byte
    }
}
