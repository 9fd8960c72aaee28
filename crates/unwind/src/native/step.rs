//! The walk itself: from frame to frame by rules, over memory that may hold anything.

use std::mem::offset_of;

use super::memory::Memory;
use super::rule::{Cfa, Rule, SavedBp, Step};
use crate::Frames;

/// Registers that a walk follows, with their values in one frame.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// Address of the instruction that runs next.
    pub pc: u64,
    /// Stack pointer, the register rsp.
    pub sp: u64,
    /// Frame pointer, the register rbp, or any other value that the function keeps there.
    pub bp: u64,
}

/// Way in which a walk came to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A return address: the frame is in the call before it.
    Return,
    /// An address where a signal interrupted the frame, before the instruction.
    Interrupted,
}

/// Lowest address of code: the kernel maps nothing below it.
const LOWEST: u64 = 0x1000;

/// Fills `frames` with the address of the first frame and the return addresses of its callers.
///
/// The stack pointer rises with each step, except once: from a handler's stack to the interrupted
/// one.
pub fn unwind<M: Memory>(
    first: Registers,
    memory: &M,
    mut rule_for: impl FnMut(u64, Arrival) -> Rule,
    frames: &mut Frames,
) {
    let mut at = first;
    let mut arrival = Arrival::Return;
    let mut guessed = false;
    let mut may_change_stack = true;
    frames.clear();
    while at.pc >= LOWEST {
        let rule = rule_for(at.pc, arrival);
        if guessed && !rule.after_call() {
            return;
        }
        let step = rule.step();
        if step == Step::NotCode || !frames.push(at.pc) {
            return;
        }
        let next = match step {
            Step::Caller(cfa, bp) => caller(&at, cfa, bp, memory),
            Step::Signal => interrupted(&at, memory),
            Step::Outermost => return frames.complete(),
            Step::NotCode | Step::End => None,
        };
        let Some(next) = next else { return };
        if next.sp <= at.sp {
            if step != Step::Signal || !may_change_stack {
                return;
            }
            may_change_stack = false;
        }
        arrival = match step {
            Step::Signal => Arrival::Interrupted,
            _ => Arrival::Return,
        };
        guessed = rule.is_guess();
        at = next;
    }
    // The first function of a thread has 0 for its return address (System V ABI for AMD64, 3.4.1).
    if at.pc == 0 && !frames.as_slice().is_empty() {
        frames.complete();
    }
}

#[inline]
fn caller<M: Memory>(at: &Registers, cfa: Cfa, bp: SavedBp, memory: &M) -> Option<Registers> {
    if !matches!(cfa, Cfa::Sp(_)) || matches!(bp, SavedBp::AtBp(_)) {
        memory.uses_bp();
    }
    let sp = match cfa {
        Cfa::Sp(offset) => at.sp.wrapping_add_signed(offset),
        Cfa::Bp(offset) => at.bp.wrapping_add_signed(offset),
        Cfa::AtBp(offset) => memory.word(at.bp.wrapping_add_signed(offset))?,
    };
    Some(Registers {
        pc: memory.return_address(sp.wrapping_sub(8))?,
        sp,
        bp: match bp {
            SavedBp::Same => at.bp,
            SavedBp::AtCfa(offset) => memory.saved_bp(sp.wrapping_add_signed(offset))?,
            SavedBp::AtBp(offset) => memory.saved_bp(at.bp.wrapping_add_signed(offset))?,
        },
    })
}

/// Reads the interrupted registers. After the handler has returned, the stack pointer points at the
/// `ucontext_t` that the kernel left.
#[cold]
fn interrupted<M: Memory>(at: &Registers, memory: &M) -> Option<Registers> {
    memory.leaves_handler();
    let register = |which: i32| {
        let registers = offset_of!(libc::ucontext_t, uc_mcontext.gregs) as u64;
        memory.word(at.sp.wrapping_add(registers + 8 * which as u64))
    };
    Some(Registers {
        pc: register(libc::REG_RIP)?,
        sp: register(libc::REG_RSP)?,
        bp: register(libc::REG_RBP)?,
    })
}
