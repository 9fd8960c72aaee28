//! The offsets that CPython 3.13 and later publish at the beginning of `_PyRuntime`, for debuggers.
//!
//! `_Py_DebugOffsets` is an array of numbers of eight bytes. 3.13 has it in
//! Include/internal/pycore_runtime.h, 3.14 in Include/internal/pycore_debug_offsets.h, with
//! additional numbers in between. It begins with a cookie, the version, and a flag of a build
//! without a GIL.

use crate::declined::Declined;
use crate::layout::{ADAPTIVE, Boundary, FrameLayout, Layout};
use crate::memory::Memory;

/// First number of the array, its cookie.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Indexes in the array at which the groups of a version begin.
struct Groups {
    /// `thread_state`: size, previous, next, interpreter, current frame, thread.
    thread: u64,
    /// `interpreter_frame`: size, previous, executable, instruction, locals, owner.
    frame: u64,
    /// `code_object`: size, file, name, qualified name, table of lines, first line, …; instructions
    /// at 9.
    code: u64,
    /// `unicode_object`: size, state, length, size of the ASCII form.
    text: u64,
}

/// Group `runtime_state`: size, finalizing.
const RUNTIME: u64 = 3;
/// Bound of plausible offsets.
const FARTHEST: u64 = 1 << 16;
/// Distance of `_co_firsttraceable` before the instructions (Include/cpython/code.h): `co_extra` is
/// in between.
const TRACEABLE_BEFORE: u64 = 16;
/// Bytes of a text between the ASCII form and the head of another text: length and address of its
/// UTF-8.
const UTF8: u64 = 16;

/// Returns the layout of a version from 3.13 on.
///
/// # Errors
/// The numbers are missing, or are of another version, or of a build without a GIL.
pub fn published(memory: &impl Memory, runtime: u64, minor: u8) -> Result<Layout, Declined> {
    let groups = match minor {
        13 => Groups {
            thread: 19,
            frame: 28,
            code: 34,
            text: 67,
        },
        14 => Groups {
            thread: 22,
            frame: 31,
            code: 39,
            text: 77,
        },
        _ => return Err(Declined::Version(minor)),
    };
    let number = |at: u64| {
        memory
            .word(runtime.wrapping_add(8 * at))
            .ok_or(Declined::Layout)
    };
    let version = number(1)?;
    if number(0)? != COOKIE || version >> 16 != 0x300 | u64::from(minor) {
        return Err(Declined::Layout);
    }
    if number(2)? != 0 {
        return Err(Declined::FreeThreaded);
    }
    let offset = |group: u64, place: u64| match number(group + place) {
        Ok(offset) if offset < FARTHEST => Ok(offset),
        _ => Err(Declined::Layout),
    };
    let instructions = offset(groups.code, 9)?;
    let ascii_head = offset(groups.text, 3)?;
    Ok(Layout {
        minor,
        finalizing: offset(RUNTIME, 1)?,
        thread_id: offset(groups.thread, 5)?,
        interpreter: offset(groups.thread, 3)?,
        current: offset(groups.thread, 4)?,
        cframe: None,
        frame: FrameLayout {
            previous: offset(groups.frame, 1)?,
            code: offset(groups.frame, 2)?,
            instruction: offset(groups.frame, 3)?,
            owner: offset(groups.frame, 5)?,
            boundary: Boundary::Shim,
        },
        file: offset(groups.code, 1)?,
        name: offset(groups.code, 3)?,
        lines: offset(groups.code, 4)?,
        first_line: offset(groups.code, 5)?,
        instructions,
        first_traceable: instructions
            .checked_sub(TRACEABLE_BEFORE)
            .ok_or(Declined::Layout)?,
        ascii_head,
        compact_head: ascii_head + UTF8,
        ..ADAPTIVE
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::made::Made;

    /// Returns the numbers of a version in the order of its header. The values are made up, except
    /// the known ones.
    fn numbers(version: u64, count: u64, known: &[(u64, u64)]) -> Vec<u8> {
        let mut all: Vec<u64> = (0..count).map(|n| 8 * n + 1_000).collect();
        (all[0], all[1], all[2]) = (COOKIE, version, 0);
        for (at, value) in known {
            all[*at as usize] = *value;
        }
        all.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn layout(bytes: &[u8], minor: u8) -> Result<Layout, Declined> {
        let mut memory = Made::default();
        let at = memory.put(bytes);
        published(&memory, at, minor)
    }

    /// The values that the compiler gives for the headers of 3.13.0.
    #[test]
    fn those_of_3_13_are_found() {
        let known = [
            (4, 608),
            (22, 16),
            (23, 72),
            (24, 152),
            (29, 8),
            (30, 0),
            (31, 56),
            (33, 70),
            (35, 112),
            (37, 128),
            (38, 136),
            (39, 68),
            (43, 200),
            (70, 40),
        ];
        let found = layout(&numbers(0x030d_00f0, 73, &known), 13).expect("a layout");
        let expected = Layout {
            minor: 13,
            finalizing: 608,
            thread_id: 152,
            current: 72,
            cframe: None,
            instructions: 200,
            first_traceable: 184,
            ..ADAPTIVE
        };
        assert_eq!(found, expected);
    }

    /// Places from the header of 3.14, with made-up values: no build of 3.14 was available.
    #[test]
    fn those_of_3_14_are_found_where_its_header_has_them() {
        let found = layout(&numbers(0x030e_00f0, 95, &[]), 14).expect("a layout");
        let at = |n: u64| 8 * n + 1_000;
        let expected = Layout {
            minor: 14,
            finalizing: at(4),
            thread_id: at(27),
            interpreter: at(25),
            current: at(26),
            cframe: None,
            frame: FrameLayout {
                previous: at(32),
                code: at(33),
                instruction: at(34),
                owner: at(36),
                boundary: Boundary::Shim,
            },
            file: at(40),
            name: at(42),
            lines: at(43),
            first_line: at(44),
            instructions: at(48),
            first_traceable: at(48) - 16,
            ascii_head: at(80),
            compact_head: at(80) + 16,
            ..ADAPTIVE
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn others_are_declined() {
        let sound = numbers(0x030d_00f0, 73, &[]);
        let with = |at: usize, value: u64| {
            let mut bytes = sound.clone();
            bytes[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
            layout(&bytes, 13)
        };
        assert!(layout(&sound, 13).is_ok());
        assert_eq!(with(0, 1), Err(Declined::Layout));
        assert_eq!(with(1, 0x030e_00f0), Err(Declined::Layout));
        assert_eq!(with(2, 1), Err(Declined::FreeThreaded));
        assert_eq!(with(23, u64::MAX), Err(Declined::Layout));
        assert_eq!(with(43, 8), Err(Declined::Layout));
        assert_eq!(layout(&sound[..300], 13), Err(Declined::Layout));
        assert_eq!(layout(&sound, 15), Err(Declined::Version(15)));
    }
}
