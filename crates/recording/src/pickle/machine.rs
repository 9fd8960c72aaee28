//! The machine whose program a pickle is, without the instructions that have effects.

use crate::error::{Error, failed};
use crate::pickle::Value;

/// Instructions that import, call or ask the reader for data, by the names of `pickletools`.
const CODE: [(u8, &str); 16] = [
    (b'c', "GLOBAL"),
    (0x93, "STACK_GLOBAL"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x97, "NEXT_BUFFER"),
    (0x98, "READONLY_BUFFER"),
    (0x91, "FROZENSET"),
];

/// The instruction that a pickle begins with.
pub(super) const PROTO: u8 = 0x80;

/// Reason for which the machine stopped before its end.
pub(super) enum Stop {
    Refused(Error),
    Damaged(String),
}

/// Bytes of memory for a value.
const VALUE: usize = size_of::<Value>();
/// Bytes of memory for a list, tuple or dict beside its parts.
const CONTAINER: usize = size_of::<Vec<Value>>();
/// Bytes of memory that values may take for each byte of the file.
const BYTES_EACH: usize = 24;
/// Bytes of memory that any file may take.
const LEAST: usize = 16 << 20;
/// Bytes of memory that no file may exceed.
const MOST: usize = 8 << 30;

/// The machine, with its program and its memory.
pub(super) struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The stack; the value that is left on it at the end is the whole.
    pub(super) stack: Vec<Value>,
    memo: Vec<Value>,
    /// Parts of lists, tuples and dicts.
    pub(super) arena: Vec<Vec<Value>>,
    /// Bytes of memory that values may still take.
    room: usize,
}

impl<'a> Machine<'a> {
    /// Sets the machine before the first instruction.
    pub(super) fn new(bytes: &'a [u8]) -> Machine<'a> {
        Machine {
            bytes,
            at: 0,
            stack: Vec::new(),
            memo: Vec::new(),
            arena: Vec::new(),
            // Real snapshots take less than half of it.
            room: (bytes.len().saturating_mul(BYTES_EACH))
                .saturating_add(LEAST)
                .min(MOST),
        }
    }

    /// Runs the program to its end.
    pub(super) fn run(&mut self) -> Result<(), Stop> {
        loop {
            let from = self.at;
            match self.step() {
                Some(true) => return Ok(()),
                Some(false) => {}
                None => return Err(self.why(from)),
            }
            if self.room == 0 {
                return Err(Stop::Refused(failed!(
                    "it wants more memory than a snapshot of {} bytes needs",
                    self.bytes.len()
                )));
            }
        }
    }

    /// Returns the fault of the instruction at a place.
    fn why(&self, at: usize) -> Stop {
        let Some(code) = self.bytes.get(at) else {
            return Stop::Damaged(format!("it is cut off after {at} bytes"));
        };
        if let Some((_, name)) = CODE.iter().find(|(number, _)| number == code) {
            return Stop::Refused(failed!(
                "at byte {at} it asks for code to be run ({name}), and only data is taken from files"
            ));
        }
        if self.at >= self.bytes.len() {
            return Stop::Damaged(format!("it is cut off after {} bytes", self.bytes.len()));
        }
        Stop::Damaged(format!(
            "it is damaged at byte {at} (instruction {code:#04x}); what comes before is read"
        ))
    }

    /// Runs one instruction, and returns true if it was the last. Returns `None` if it is
    /// malformed. The names beside the numbers are those of `pickletools`.
    fn step(&mut self) -> Option<bool> {
        let code = *self.take(1)?.first()?;
        match code {
            b'.' => return (!self.stack.is_empty()).then_some(true), // STOP
            PROTO => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),            // FRAME
            b'(' => self.push(Value::Mark),         // MARK
            b'0' => drop(self.stack.pop()?),        // POP
            b'1' => drop(self.since_mark()?),       // POP_MARK
            b'2' => self.push(*self.stack.last()?), // DUP
            b'N' => self.push(Value::None),         // NONE
            0x88 => self.push(Value::Bool(true)),   // NEWTRUE
            0x89 => self.push(Value::Bool(false)),  // NEWFALSE
            b'J' => {
                // BININT
                let number = i32::from_le_bytes(self.take(4)?.try_into().ok()?);
                self.push(Value::Int(number.into()));
            }
            b'K' => self.unsigned(1)?, // BININT1
            b'M' => self.unsigned(2)?, // BININT2
            0x8a => self.long(1)?,     // LONG1
            0x8b => self.long(4)?,     // LONG4
            b'G' => {
                // BINFLOAT
                let number = f64::from_be_bytes(self.take(8)?.try_into().ok()?);
                self.push(Value::Float(number));
            }
            0x8c | b'U' => self.text(1)?, // SHORT_BINUNICODE, SHORT_BINSTRING
            b'X' | b'T' => self.text(4)?, // BINUNICODE, BINSTRING
            0x8d => self.text(8)?,        // BINUNICODE8
            b'C' => self.blob(1)?,        // SHORT_BINBYTES
            b'B' => self.blob(4)?,        // BINBYTES
            0x8e | 0x96 => self.blob(8)?, // BINBYTES8, BYTEARRAY8
            b']' => self.make(Value::List, Vec::new())?, // EMPTY_LIST
            b')' => self.make(Value::Tuple, Vec::new())?, // EMPTY_TUPLE
            b'}' => self.make(Value::Dict, Vec::new())?, // EMPTY_DICT
            b'l' | b't' | b'd' => {
                // LIST, TUPLE, DICT
                let parts = self.since_mark()?;
                let kind = match code {
                    b'l' => Value::List,
                    b't' => Value::Tuple,
                    _ => Value::Dict,
                };
                self.make(kind, parts)?;
            }
            0x85..=0x87 => {
                // TUPLE1, TUPLE2, TUPLE3
                let count = usize::from(code - 0x85) + 1;
                let parts = self.top(count)?;
                self.make(Value::Tuple, parts)?;
            }
            b'a' | b's' => {
                // APPEND, SETITEM
                let parts = self.top(if code == b'a' { 1 } else { 2 })?;
                self.extend(parts)?;
            }
            b'e' | b'u' => {
                // APPENDS, SETITEMS
                let parts = self.since_mark()?;
                self.extend(parts)?;
            }
            0x94 => self.put(self.memo.len())?, // MEMOIZE
            b'q' | b'r' => {
                // BINPUT, LONG_BINPUT
                let index = self.size(if code == b'q' { 1 } else { 4 })?;
                self.put(index)?;
            }
            b'h' | b'j' => {
                // BINGET, LONG_BINGET
                let index = self.size(if code == b'h' { 1 } else { 4 })?;
                self.push(*self.memo.get(index)?);
            }
            _ => return None,
        }
        Some(false)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        self.at = match (taken, end) {
            (Some(_), Some(end)) => end,
            _ => self.bytes.len(),
        };
        taken
    }

    /// Reads a length or index, stored in `bytes` bytes.
    fn size(&mut self, bytes: usize) -> Option<usize> {
        let mut whole = [0; 8];
        whole.get_mut(..bytes)?.copy_from_slice(self.take(bytes)?);
        usize::try_from(u64::from_le_bytes(whole)).ok()
    }

    fn push(&mut self, value: Value) {
        self.take_room(VALUE);
        self.stack.push(value);
    }

    fn take_room(&mut self, bytes: usize) {
        self.room = self.room.saturating_sub(bytes);
    }

    fn unsigned(&mut self, bytes: usize) -> Option<()> {
        let number = self.size(bytes)?;
        self.push(Value::Int(i64::try_from(number).ok()?));
        Some(())
    }

    /// Reads an integer of any length: little endian, two's complement.
    fn long(&mut self, bytes: usize) -> Option<()> {
        let length = self.size(bytes)?;
        let digits = self.take(length)?;
        let is_negative = digits.last().is_some_and(|top| top & 0x80 != 0);
        let fill = if is_negative { 0xff } else { 0 };
        let (low, high) = digits.split_at(digits.len().min(8));
        let mut whole = [fill; 8];
        whole.get_mut(..low.len())?.copy_from_slice(low);
        let number = i64::from_le_bytes(whole);
        let fits = high.iter().all(|byte| *byte == fill) && (number < 0) == is_negative;
        self.push(if fits {
            Value::Int(number)
        } else {
            Value::Large
        });
        Some(())
    }

    fn text(&mut self, bytes: usize) -> Option<()> {
        let length = self.size(bytes)?;
        let at = self.at;
        self.take(length)?;
        let length = u32::try_from(length).ok()?;
        self.push(Value::Text { at, length });
        Some(())
    }

    fn blob(&mut self, bytes: usize) -> Option<()> {
        let length = self.size(bytes)?;
        self.take(length)?;
        self.push(Value::Bytes);
        Some(())
    }

    /// Returns the values since the last mark, and removes the mark.
    fn since_mark(&mut self) -> Option<Vec<Value>> {
        let mark = self.stack.iter().rposition(|value| *value == Value::Mark)?;
        let parts = self.stack.split_off(mark + 1);
        self.stack.pop();
        Some(parts)
    }

    fn top(&mut self, count: usize) -> Option<Vec<Value>> {
        let from = self.stack.len().checked_sub(count)?;
        let parts = self.stack.split_off(from);
        let whole = parts.iter().all(|part| *part != Value::Mark);
        whole.then_some(parts)
    }

    fn make(&mut self, of: fn(u32) -> Value, parts: Vec<Value>) -> Option<()> {
        let index = u32::try_from(self.arena.len()).ok()?;
        self.take_room(CONTAINER + VALUE * parts.len());
        self.arena.push(parts);
        self.push(of(index));
        Some(())
    }

    /// Adds parts to the list or dict on top of the stack.
    fn extend(&mut self, parts: Vec<Value>) -> Option<()> {
        let (Value::List(index) | Value::Dict(index)) = *self.stack.last()? else {
            return None;
        };
        self.take_room(VALUE * parts.len());
        self.arena.get_mut(index as usize)?.extend(parts);
        Some(())
    }

    fn put(&mut self, index: usize) -> Option<()> {
        let value = *self.stack.last()?;
        if value == Value::Mark || index > self.at {
            // A pickle that uses this memo number has at least this number of bytes.
            return None;
        }
        if index >= self.memo.len() {
            let more = index + 1 - self.memo.len();
            self.take_room(VALUE * more);
            self.memo.resize(index + 1, Value::None);
        }
        *self.memo.get_mut(index)? = value;
        Some(())
    }

    /// Puts the values on the stack into their containers, as if every open list and dict ended
    /// here.
    pub(super) fn close(&mut self) {
        while self.stack.len() > 1 {
            match self.since_mark() {
                Some(parts) => self.adopt(parts),
                None => {
                    let parts = self.stack.split_off(1);
                    self.adopt(parts);
                }
            }
        }
    }

    /// Gives parts to the container on top of the stack. A list among them with a sibling in the
    /// place of a key was about to get this sibling as its one element.
    fn adopt(&mut self, parts: Vec<Value>) {
        let Some(owner) = self.stack.last().copied() else {
            self.stack.extend(parts.first());
            return;
        };
        let mut kept: Vec<Value> = Vec::new();
        for part in parts {
            let is_key = matches!(owner, Value::Dict(_)) && kept.len().is_multiple_of(2);
            match kept.last() {
                Some(Value::List(list)) if is_key && !matches!(part, Value::Text { .. }) => {
                    if let Some(list) = self.arena.get_mut(*list as usize) {
                        list.push(part);
                    }
                }
                _ => kept.push(part),
            }
        }
        if matches!(owner, Value::Dict(_)) && !kept.len().is_multiple_of(2) {
            kept.pop();
        }
        // Other values cannot hold parts, which are lost.
        let _ = self.extend(kept);
    }
}
