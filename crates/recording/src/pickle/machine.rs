//! The machine whose program a pickle is, without the instructions that have effects.

use crate::error::{Error, failed};
use crate::pickle::Value;

/// Numbers of the instructions.
mod op {
    pub const PROTO: u8 = 0x80;
    pub const FRAME: u8 = 0x95;
    pub const STOP: u8 = b'.';
    pub const MARK: u8 = b'(';
    pub const POP: u8 = b'0';
    pub const POP_MARK: u8 = b'1';
    pub const DUP: u8 = b'2';
    pub const NONE: u8 = b'N';
    pub const NEWTRUE: u8 = 0x88;
    pub const NEWFALSE: u8 = 0x89;
    pub const BININT: u8 = b'J';
    pub const BININT1: u8 = b'K';
    pub const BININT2: u8 = b'M';
    pub const LONG1: u8 = 0x8a;
    pub const LONG4: u8 = 0x8b;
    pub const BINFLOAT: u8 = b'G';
    pub const SHORT_BINUNICODE: u8 = 0x8c;
    pub const BINUNICODE: u8 = b'X';
    pub const BINUNICODE8: u8 = 0x8d;
    pub const SHORT_BINSTRING: u8 = b'U';
    pub const BINSTRING: u8 = b'T';
    pub const SHORT_BINBYTES: u8 = b'C';
    pub const BINBYTES: u8 = b'B';
    pub const BINBYTES8: u8 = 0x8e;
    pub const BYTEARRAY8: u8 = 0x96;
    pub const EMPTY_LIST: u8 = b']';
    pub const LIST: u8 = b'l';
    pub const APPEND: u8 = b'a';
    pub const APPENDS: u8 = b'e';
    pub const EMPTY_TUPLE: u8 = b')';
    pub const TUPLE: u8 = b't';
    pub const TUPLE1: u8 = 0x85;
    pub const TUPLE2: u8 = 0x86;
    pub const TUPLE3: u8 = 0x87;
    pub const EMPTY_DICT: u8 = b'}';
    pub const DICT: u8 = b'd';
    pub const SETITEM: u8 = b's';
    pub const SETITEMS: u8 = b'u';
    pub const BINPUT: u8 = b'q';
    pub const LONG_BINPUT: u8 = b'r';
    pub const MEMOIZE: u8 = 0x94;
    pub const BINGET: u8 = b'h';
    pub const LONG_BINGET: u8 = b'j';

    /// Instructions that import, call or ask the reader for data, by the names of `pickletools`.
    pub const CODE: [(u8, &str); 16] = [
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
}

/// The instruction that a pickle begins with.
pub(super) const PROTO: u8 = op::PROTO;

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
        if let Some((_, name)) = op::CODE.iter().find(|(number, _)| number == code) {
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
    /// malformed.
    fn step(&mut self) -> Option<bool> {
        let code = *self.take(1)?.first()?;
        match code {
            op::STOP => return (!self.stack.is_empty()).then_some(true),
            op::PROTO => drop(self.take(1)?),
            op::FRAME => drop(self.take(8)?),
            op::MARK => self.push(Value::Mark),
            op::POP => drop(self.stack.pop()?),
            op::POP_MARK => drop(self.since_mark()?),
            op::DUP => self.push(*self.stack.last()?),
            op::NONE => self.push(Value::None),
            op::NEWTRUE => self.push(Value::Bool(true)),
            op::NEWFALSE => self.push(Value::Bool(false)),
            op::BININT => {
                let number = i32::from_le_bytes(self.take(4)?.try_into().ok()?);
                self.push(Value::Int(number.into()));
            }
            op::BININT1 => self.unsigned(1)?,
            op::BININT2 => self.unsigned(2)?,
            op::LONG1 => self.long(1)?,
            op::LONG4 => self.long(4)?,
            op::BINFLOAT => {
                let number = f64::from_be_bytes(self.take(8)?.try_into().ok()?);
                self.push(Value::Float(number));
            }
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => self.text(1)?,
            op::BINUNICODE | op::BINSTRING => self.text(4)?,
            op::BINUNICODE8 => self.text(8)?,
            op::SHORT_BINBYTES => self.blob(1)?,
            op::BINBYTES => self.blob(4)?,
            op::BINBYTES8 | op::BYTEARRAY8 => self.blob(8)?,
            op::EMPTY_LIST => self.make(Value::List, Vec::new())?,
            op::EMPTY_TUPLE => self.make(Value::Tuple, Vec::new())?,
            op::EMPTY_DICT => self.make(Value::Dict, Vec::new())?,
            op::LIST | op::TUPLE | op::DICT => {
                let parts = self.since_mark()?;
                match code {
                    op::LIST => self.make(Value::List, parts)?,
                    op::TUPLE => self.make(Value::Tuple, parts)?,
                    _ => self.make(Value::Dict, parts)?,
                }
            }
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let count = usize::from(code - op::TUPLE1) + 1;
                let parts = self.top(count)?;
                self.make(Value::Tuple, parts)?;
            }
            op::APPEND => {
                let parts = self.top(1)?;
                self.extend(parts)?;
            }
            op::SETITEM => {
                let parts = self.top(2)?;
                self.extend(parts)?;
            }
            op::APPENDS | op::SETITEMS => {
                let parts = self.since_mark()?;
                self.extend(parts)?;
            }
            op::MEMOIZE => self.put(self.memo.len())?,
            op::BINPUT => {
                let index = self.size(1)?;
                self.put(index)?;
            }
            op::LONG_BINPUT => {
                let index = self.size(4)?;
                self.put(index)?;
            }
            op::BINGET => {
                let index = self.size(1)?;
                self.push(*self.memo.get(index)?);
            }
            op::LONG_BINGET => {
                let index = self.size(4)?;
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
