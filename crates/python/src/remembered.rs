//! Frames that were read before, and a check that they are unchanged.
//!
//! From 3.12 on each code object has a unique number. So a frame with the same code, number and
//! instruction is at the same place in the source. The check reads three cache lines for each
//! frame.

use std::cell::Cell;

use crate::layout::{Layout, OWNED_BY_INTERPRETER};
use crate::memory::Memory;

/// Frame as it was when it was read. A value of zeros is no frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RememberedFrame {
    frame: u64,
    /// Reference to the code object, as in the frame.
    code: u64,
    instruction: u64,
    /// Pointer to the file's name in the code object, which belongs to one interpreter.
    file: u64,
    /// Number of the code object; 0 for a frame of the interpreter's own.
    number: i32,
    owner: u8,
}

/// Puts the frames of a thread state into `into`, from the innermost outwards. Returns their
/// number. `None` if not all fit, or if one cannot be distinguished from others later.
pub fn remember(
    memory: &impl Memory,
    layout: &Layout,
    thread_state: u64,
    into: &[Cell<RememberedFrame>],
) -> Option<usize> {
    let mut frame = innermost(memory, layout, thread_state)?;
    let mut count = 0;
    while frame != 0 {
        let seen = look(memory, layout, frame)?;
        if seen.owner < OWNED_BY_INTERPRETER && seen.number == 0 {
            return None;
        }
        into.get(count)?.set(seen);
        count += 1;
        frame = memory.word(frame.wrapping_add(layout.frame.previous))?;
    }
    Some(count)
}

/// True if the frames of a thread state are these.
#[inline]
pub fn are(
    memory: &impl Memory,
    layout: &Layout,
    thread_state: u64,
    remembered: &[Cell<RememberedFrame>],
) -> bool {
    let mut frame = innermost(memory, layout, thread_state);
    for known in remembered.iter().map(Cell::get) {
        // Only after this comparison is it sure that there is a frame at this address.
        if frame != Some(known.frame) || !is(memory, layout, &known) {
            return false;
        }
        frame = memory.word(known.frame.wrapping_add(layout.frame.previous));
    }
    frame == Some(0)
}

#[inline]
fn innermost(memory: &impl Memory, layout: &Layout, thread_state: u64) -> Option<u64> {
    let current = memory.word(thread_state.wrapping_add(layout.current))?;
    match layout.cframe {
        Some(at) => memory.word(current.wrapping_add(at)),
        None => Some(current),
    }
}

fn look(memory: &impl Memory, layout: &Layout, frame: u64) -> Option<RememberedFrame> {
    let in_frame = |at: u64| memory.word(frame.wrapping_add(at));
    let mut seen = RememberedFrame {
        frame,
        code: in_frame(layout.frame.code)?,
        instruction: in_frame(layout.frame.instruction)?,
        owner: memory.byte(frame.wrapping_add(layout.frame.owner))?,
        ..RememberedFrame::default()
    };
    if seen.owner < OWNED_BY_INTERPRETER {
        let code = object(seen.code);
        seen.number = memory.number(code.wrapping_add(layout.version?))?;
        seen.file = memory.word(code.wrapping_add(layout.file))?;
    }
    Some(seen)
}

#[inline]
fn is(memory: &impl Memory, layout: &Layout, known: &RememberedFrame) -> bool {
    let in_frame = |at: u64| memory.word(known.frame.wrapping_add(at));
    let is_same = in_frame(layout.frame.code) == Some(known.code)
        && in_frame(layout.frame.instruction) == Some(known.instruction)
        && memory.byte(known.frame.wrapping_add(layout.frame.owner)) == Some(known.owner);
    if !is_same || known.number == 0 {
        return is_same;
    }
    // The frame refers to the object, so it exists, and code is only replaced by code: it may be
    // another one.
    let code = object(known.code);
    let number = layout
        .version
        .map(|at| memory.number(code.wrapping_add(at)));
    number == Some(Some(known.number))
        && memory.word(code.wrapping_add(layout.file)) == Some(known.file)
}

/// Returns the address of a reference: from 3.14 on its lowest bits are a tag.
#[inline]
fn object(reference: u64) -> u64 {
    reference & !7
}

#[cfg(test)]
mod tests;
