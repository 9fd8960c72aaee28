//! Walk from frame to frame.

use crate::call::Call;
use crate::layout::{self, Boundary, Layout, OWNED_BY_GENERATOR, OWNED_BY_INTERPRETER};
use crate::memory::Memory;
use crate::symbols::Types;

/// Step of a walk, from the innermost frame outwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A function that has begun.
    Call(Call),
    /// The frames since the last `Entry`, or since the beginning, belong to one native call of the
    /// evaluator.
    Entry,
}

/// Largest number of frames of a walk: a damaged chain could be a ring.
const MOST: usize = 4096;

/// Walks the frames of a thread state and gives each step to `take`, until it returns false. `None`
/// if the walk ends at an invalid frame. The thread state is in `memory`, and so are the frames
/// from 3.11 on. Before 3.11 frames are objects, like code.
#[inline]
pub fn steps(
    memory: &impl Memory,
    objects: &impl Memory,
    layout: &Layout,
    types: &Types,
    thread_state: u64,
    mut take: impl FnMut(Step) -> bool,
) -> Option<()> {
    let mut frame = memory.word(thread_state.wrapping_add(layout.current))?;
    if let Some(current) = layout.cframe {
        frame = memory.word(frame.wrapping_add(current))?;
    }
    for _ in 0..MOST {
        if frame == 0 {
            return Some(());
        }
        let read = match layout.frame.boundary {
            // Frame objects outlive the thread state.
            Boundary::Each => object(objects, layout, types, frame)?,
            Boundary::Flag(_) | Boundary::Shim => {
                interpreter(memory, objects, layout, types, frame)?
            }
        };
        if let Some(call) = read.call
            && !take(Step::Call(call))
        {
            return Some(());
        }
        if read.is_outermost && !take(Step::Entry) {
            return Some(());
        }
        frame = match layout.frame.boundary {
            Boundary::Each => objects.word(frame.wrapping_add(layout.frame.previous))?,
            Boundary::Flag(_) | Boundary::Shim => {
                memory.word(frame.wrapping_add(layout.frame.previous))?
            }
        };
    }
    None
}

/// Function and boundary read from one frame.
struct Read {
    /// The function, if it has begun.
    call: Option<Call>,
    /// True if no frame further out is of the same native call.
    is_outermost: bool,
}

/// Reads a frame object: up to 3.10.
#[inline]
fn object(memory: &impl Memory, layout: &Layout, types: &Types, frame: u64) -> Option<Read> {
    let code = code_of(memory, memory, layout, types, frame)?;
    let last = memory.number(frame.wrapping_add(layout.frame.instruction))?;
    // Bytes up to 3.9, then instructions of two bytes; −1 before the first.
    let unit = if layout.minor < 10 { 1 } else { 2 };
    Some(Read {
        call: Some(Call {
            code,
            offset: last.saturating_mul(unit).max(-1),
        }),
        is_outermost: true,
    })
}

/// Reads a frame of the interpreter: from 3.11 on.
#[inline]
fn interpreter(
    memory: &impl Memory,
    objects: &impl Memory,
    layout: &Layout,
    types: &Types,
    frame: u64,
) -> Option<Read> {
    let owner = memory.byte(frame.wrapping_add(layout.frame.owner))?;
    if layout.frame.boundary == Boundary::Shim && owner >= OWNED_BY_INTERPRETER {
        return Some(Read {
            call: None,
            is_outermost: owner == OWNED_BY_INTERPRETER,
        });
    }
    let code = code_of(memory, objects, layout, types, frame)?;
    let instruction = memory.word(frame.wrapping_add(layout.frame.instruction))?;
    let offset = instruction.wrapping_sub(code.wrapping_add(layout.instructions));
    let offset = i32::try_from(offset.cast_signed()).ok()?;
    let traceable = objects.number(code.wrapping_add(layout.first_traceable))?;
    // Like `_PyFrame_IsIncomplete`: it is being made, and `traceback` does not show it.
    let is_begun = owner == OWNED_BY_GENERATOR || offset >= traceable.saturating_mul(2);
    Some(Read {
        call: is_begun.then_some(Call {
            code,
            offset: offset.max(-1),
        }),
        is_outermost: match layout.frame.boundary {
            Boundary::Flag(flag) => memory.byte(frame.wrapping_add(flag))? != 0,
            Boundary::Each | Boundary::Shim => false,
        },
    })
}

/// Returns the code object of a frame; `None` if it has none.
#[inline]
fn code_of(
    memory: &impl Memory,
    objects: &impl Memory,
    layout: &Layout,
    types: &Types,
    frame: u64,
) -> Option<u64> {
    // From 3.14 on the lowest bits are a tag; objects begin at multiples of 8.
    let code = memory.word(frame.wrapping_add(layout.frame.code))? & !7;
    (objects.word(code.wrapping_add(layout::TYPE))? == types.code).then_some(code)
}

#[cfg(test)]
mod tests;
