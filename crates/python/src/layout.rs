//! Layout of the CPython objects that a walk reads, by version, in builds for 64 bits.
//!
//! The numbers are the offsets that the compiler gives for the headers of each version; they did
//! not change within a minor version. 3.13 and later publish most of theirs, see `offsets`. All
//! offsets are checked against the running interpreter before they are used.

/// Coding of the lines of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineTable {
    /// `co_lnotab`: 3.9 and before (Objects/lnotab_notes.txt).
    Deltas,
    /// `co_linetable` of 3.10 (PEP 626, Objects/lnotab_notes.txt).
    Ranges,
    /// `co_linetable` of 3.11 and later (Objects/locations.md).
    Locations,
}

/// Mark by which frames of one native call of the evaluator are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Each frame has a native call of its own.
    Each,
    /// A byte of the frame is set if it is the outermost of its native call: 3.11.
    Flag(u64),
    /// A frame of the interpreter's own is outside of the frames of a native call: 3.12 and later.
    Shim,
}

/// Offsets of the fields of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// Pointer to the next outer frame.
    pub previous: u64,
    /// Pointer to the code object; its lowest bits may be a tag.
    pub code: u64,
    /// Progress of the frame, up to 3.10 an `int`; from 3.11 on a pointer to the instruction.
    pub instruction: u64,
    /// A byte for the owner of the frame; from 3.11 on.
    pub owner: u64,
    /// Mark of the frames of one native call.
    pub boundary: Boundary,
}

/// Offsets of the fields of all objects, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Minor version; the major one is 3.
    pub minor: u8,
    /// In `_PyRuntime`: the thread state that ends the interpreter, or null.
    pub finalizing: u64,
    /// In a thread state: the thread, as `pthread_self` gives it.
    pub thread_id: u64,
    /// In a thread state: pointer to the interpreter.
    pub interpreter: u64,
    /// In a thread state: pointer to the innermost frame; with `cframe`, to a structure with that
    /// pointer.
    pub current: u64,
    /// In the structure that `current` points at: pointer to the innermost frame. 3.11 and 3.12.
    pub cframe: Option<u64>,
    /// Offsets of the fields of a frame.
    pub frame: FrameLayout,
    /// In a code object: pointer to its file's name.
    pub file: u64,
    /// In a code object: pointer to the name of the function, qualified from 3.11 on.
    pub name: u64,
    /// In a code object: pointer to the table of lines.
    pub lines: u64,
    /// In a code object, `int`: the first line.
    pub first_line: u64,
    /// In a code object: the instructions; from 3.11 on.
    pub instructions: u64,
    /// In a code object, `int`: number of instructions before the function has begun; from 3.11 on.
    pub first_traceable: u64,
    /// In a code object, `int`: a unique number; from 3.12 on.
    pub version: Option<u64>,
    /// Coding of the table of lines.
    pub table: LineTable,
    /// Bytes of the head of a text that is all ASCII; its letters follow.
    pub ascii_head: u64,
    /// Bytes of the head of another text.
    pub compact_head: u64,
}

/// In every object: its type (Include/object.h).
pub const TYPE: u64 = 8;
/// In an object of variable size: its number of items (Include/object.h).
pub const SIZE: u64 = 16;
/// In a text: its number of letters (Include/cpython/unicodeobject.h).
pub const TEXT_LENGTH: u64 = 16;
/// In a text: its hash, −1 if nothing has asked for it.
pub const TEXT_HASH: u64 = 24;
/// In a text: the form of its letters.
pub const TEXT_STATE: u64 = 32;
/// In a `bytes`: the first byte (Include/cpython/bytesobject.h).
pub const BYTES: u64 = 32;

/// Owner of a frame that is part of a generator (Include/internal/pycore_frame.h).
pub const OWNED_BY_GENERATOR: u8 = 1;
/// Owner of the interpreter's own frames, and the least owner of frames without a function.
pub const OWNED_BY_INTERPRETER: u8 = 3;

impl Layout {
    /// Returns the layout of 3.`minor`, for versions that do not publish it.
    pub fn of(minor: u8) -> Option<Layout> {
        match minor {
            8 | 9 => Some(OBJECTS),
            10 => Some(Layout {
                minor: 10,
                // `PyFrameObject` lost `f_gen` and more (Include/cpython/frameobject.h,
                // Objects/frameobject.c).
                frame: FrameLayout {
                    instruction: 96,
                    ..OBJECTS.frame
                },
                table: LineTable::Ranges,
                ..OBJECTS
            }),
            11 => Some(Layout {
                minor: 11,
                finalizing: 24,
                thread_id: 152,
                cframe: Some(8),
                current: 56,
                // `_PyInterpreterFrame` (Include/internal/pycore_frame.h).
                frame: FrameLayout {
                    previous: 48,
                    code: 32,
                    instruction: 56,
                    owner: 69,
                    boundary: Boundary::Flag(68),
                },
                first_line: 72,
                instructions: 184,
                first_traceable: 168,
                version: None,
                ascii_head: 48,
                compact_head: 72,
                ..ADAPTIVE
            }),
            12 => Some(ADAPTIVE),
            _ => None,
        }
        .map(|layout| Layout { minor, ..layout })
    }
}

/// Layout of 3.8 and 3.9: frames are objects (Include/cpython/pystate.h, Include/frameobject.h,
/// Include/code.h).
const OBJECTS: Layout = Layout {
    minor: 8,
    finalizing: 16,
    thread_id: 176,
    interpreter: 16,
    current: 24,
    cframe: None,
    frame: FrameLayout {
        previous: 24,
        code: 32,
        instruction: 104,
        owner: 0,
        boundary: Boundary::Each,
    },
    file: 104,
    name: 112,
    lines: 120,
    first_line: 40,
    instructions: 0,
    first_traceable: 0,
    version: None,
    table: LineTable::Deltas,
    ascii_head: 48,
    compact_head: 72,
};

/// Layout of 3.12, and its common part with 3.13 and 3.14 (Include/cpython/pystate.h,
/// Include/cpython/code.h, Include/internal/pycore_frame.h).
pub const ADAPTIVE: Layout = Layout {
    minor: 12,
    finalizing: 24,
    thread_id: 136,
    interpreter: 16,
    current: 56,
    cframe: Some(0),
    frame: FrameLayout {
        previous: 8,
        code: 0,
        instruction: 56,
        owner: 70,
        boundary: Boundary::Shim,
    },
    file: 112,
    name: 128,
    lines: 136,
    first_line: 68,
    instructions: 192,
    first_traceable: 176,
    version: Some(92),
    table: LineTable::Locations,
    ascii_head: 40,
    compact_head: 56,
};
