//! Frames that were read before, and a check that they are unchanged.
//!
//! A frame with the same code and the same instruction is at the same place in the source. An
//! address may belong to other code later: so the code is compared by its [`identity`], too. From
//! 3.12 on this is a unique number, and the check takes three cache lines for each frame.

use std::cell::Cell;

use crate::call::identity;
use crate::layout::{Boundary, Layout, OWNED_BY_INTERPRETER};
use crate::memory::Memory;

/// Frame as it was when it was read. A value of zeros is no frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RememberedFrame {
    frame: u64,
    /// Reference to the code object, as in the frame.
    code: u64,
    /// Progress of the frame, as in the frame.
    instruction: u64,
    /// Identity of the code; zeros for a frame of the interpreter's own.
    identity: [u64; 3],
    /// Owner of the frame, and the mark of the native call that it begins; 0 before 3.11.
    owner: [u8; 2],
}

/// Puts the frames of a thread state into `into`, from the innermost outwards. Returns their
/// number. `None` if not all fit, or if one cannot be read.
pub fn remember(
    memory: &impl Memory,
    layout: &Layout,
    thread_state: u64,
    into: &[Cell<RememberedFrame>],
) -> Option<usize> {
    let mut frame = innermost(memory, layout, thread_state)?;
    let mut count = 0;
    while frame != 0 {
        into.get(count)?.set(look(memory, layout, frame)?);
        count += 1;
        frame = memory.word(frame.wrapping_add(layout.frame.previous))?;
    }
    Some(count)
}

/// The frames of a thread, to be compared with remembered ones from the innermost outwards.
#[derive(Debug)]
pub struct Present<'a, M> {
    memory: M,
    layout: &'a Layout,
    /// Address of the next frame; 0 after the outermost.
    next: Option<u64>,
}

impl<'a, M: Memory> Present<'a, M> {
    /// Takes the frames of a thread state.
    #[inline]
    pub fn new(memory: M, layout: &'a Layout, thread_state: u64) -> Present<'a, M> {
        let next = innermost(&memory, layout, thread_state);
        Present {
            memory,
            layout,
            next,
        }
    }

    /// True if the next frame is this one, unchanged.
    #[inline]
    pub fn is_next(&mut self, known: &RememberedFrame) -> bool {
        // Only after this comparison is it sure that there is a frame at this address.
        if self.next != Some(known.frame) || !is(&self.memory, self.layout, known) {
            return false;
        }
        let previous = known.frame.wrapping_add(self.layout.frame.previous);
        self.next = self.memory.known_word(previous);
        true
    }

    /// True if there are no more frames.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.next == Some(0)
    }
}

/// Prefetches memory that [`Present`] reads for these frames.
#[inline]
pub fn fetch_all(layout: &Layout, remembered: impl Iterator<Item = RememberedFrame>) {
    for known in remembered {
        fetch(known.frame);
        fetch(known.frame.wrapping_add(layout.frame.instruction));
        fetch(known.code.wrapping_add(layout.first_line));
    }
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
    // All of these addresses are read for the first time: they are checked.
    memory.byte(frame)?;
    let code = memory.word(frame.wrapping_add(layout.frame.code))?;
    let owner = owner(memory, layout, frame)?;
    let is_code = owner[0] < OWNED_BY_INTERPRETER;
    Some(RememberedFrame {
        frame,
        code,
        instruction: instruction(memory, layout, frame)?,
        identity: match is_code {
            true => identity(memory, layout, object(code))?,
            false => [0; 3],
        },
        owner,
    })
}

#[inline]
fn owner(memory: &impl Memory, layout: &Layout, frame: u64) -> Option<[u8; 2]> {
    let byte = |at: u64| memory.known_byte(frame.wrapping_add(at));
    match layout.frame.boundary {
        Boundary::Each => Some([0; 2]),
        Boundary::Flag(flag) => Some([byte(layout.frame.owner)?, byte(flag)?]),
        Boundary::Shim => Some([byte(layout.frame.owner)?, 0]),
    }
}

#[inline]
fn instruction(memory: &impl Memory, layout: &Layout, frame: u64) -> Option<u64> {
    let at = frame.wrapping_add(layout.frame.instruction);
    match layout.frame.boundary {
        Boundary::Each => memory.number(at).map(|last| last as u64),
        Boundary::Flag(_) | Boundary::Shim => memory.known_word(at),
    }
}

#[inline]
fn is(memory: &impl Memory, layout: &Layout, known: &RememberedFrame) -> bool {
    let code = known.frame.wrapping_add(layout.frame.code);
    let is_same = memory.known_word(code) == Some(known.code)
        && instruction(memory, layout, known.frame) == Some(known.instruction)
        && owner(memory, layout, known.frame) == Some(known.owner);
    // The frame refers to the object, so it exists, and code is only replaced by code: it may be
    // another one.
    is_same
        && (known.owner[0] >= OWNED_BY_INTERPRETER
            || identity(memory, layout, object(known.code)) == Some(known.identity))
}

/// Returns the address of a reference: from 3.14 on its lowest bits are a tag.
#[inline]
fn object(reference: u64) -> u64 {
    reference & !7
}

/// Prefetches a cache line.
#[inline]
fn fetch(address: u64) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it changes nothing, and never faults, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address as *const i8) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests;
