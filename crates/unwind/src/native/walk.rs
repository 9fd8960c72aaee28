//! Entry points of the walker.

use std::arch::naked_asm;

use super::cache::Cache;
use super::compile;
use super::known::{KnownWalks, Met};
use super::memory::{Memory, ThreadStack, UnknownStack};
use super::rule::Rule;
use super::step::{Arrival, Registers, unwind};
use crate::Frames;

/// Rules of the process. A large process calls from some thousand places.
static RULES: Cache<{ 1 << 14 }> = Cache::new();

/// Fills `frames` with the return addresses of the calling thread, from the caller of this function
/// on. Returns their number. Never fails: a stack that cannot be followed ends early.
///
/// A walk that comes through code for the first time calls the function registered by
/// [`on_new_module`](super::on_new_module). It may take the locks of the dynamic linker (glibc
/// before 2.35). All other walks take no lock, allocate nothing and make no system call, unless the
/// stack pointer is not in the thread's stack.
// Naked, so that the registers are still the caller's. At the entry the stack pointer points at the
// return address.
#[unsafe(naked)]
pub extern "C" fn walk(frames: &mut Frames) -> usize {
    naked_asm!(
        ".cfi_startproc",
        "mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {}",
        ".cfi_endproc",
        sym walk_from,
    )
}

extern "C" fn walk_from(frames: &mut Frames, return_slot: u64, bp: u64) -> usize {
    walk_by(&RULES, frames, return_slot, bp)
}

/// Walks like [`walk`], but finds a walk again that the thread has made before, in a fraction of
/// the time. Then `frames` is left empty: [`KnownWalks::copy`] fills it.
// Naked, as `walk` is.
#[unsafe(naked)]
pub extern "C" fn walk_known(frames: &mut Frames, known: &KnownWalks) -> Met {
    naked_asm!(
        ".cfi_startproc",
        "mov rdx, rsp",
        "mov rcx, rbp",
        "jmp {}",
        ".cfi_endproc",
        sym walk_known_from,
    )
}

extern "C" fn walk_known_from(
    frames: &mut Frames,
    known: &KnownWalks,
    return_slot: u64,
    bp: u64,
) -> Met {
    let Some(stack) = ThreadStack::from(return_slot) else {
        walk_by(&RULES, frames, return_slot, bp);
        return Met::UNKNOWN;
    };
    frames.clear();
    let at = first(&stack, return_slot, bp);
    known.walk(RULES.generation(), &stack, at, frames, |memory, frames| {
        unwind(at, memory, rules_of(&RULES), frames);
    })
}

/// Walks from the function that a return address on the stack leads to, with `bp` as the frame
/// pointer.
#[inline]
pub fn walk_by<const N: usize>(
    rules: &Cache<N>,
    frames: &mut Frames,
    return_slot: u64,
    bp: u64,
) -> usize {
    match ThreadStack::from(return_slot) {
        Some(stack) => follow(rules, frames, &stack, return_slot, bp),
        None => follow(
            rules,
            frames,
            &UnknownStack::from(return_slot),
            return_slot,
            bp,
        ),
    }
    frames.as_slice().len()
}

#[inline]
fn follow<const N: usize, M: Memory>(
    rules: &Cache<N>,
    frames: &mut Frames,
    memory: &M,
    return_slot: u64,
    bp: u64,
) {
    let at = first(memory, return_slot, bp);
    unwind(at, memory, rules_of(rules), frames);
}

/// Registers after the function that a return address belongs to has returned.
#[inline]
fn first(memory: &impl Memory, return_slot: u64, bp: u64) -> Registers {
    Registers {
        pc: memory.word(return_slot).unwrap_or_default(),
        sp: return_slot.wrapping_add(8),
        bp,
    }
}

/// Returns a source of rules: from the table, or compiled and put there.
#[inline]
pub fn rules_of<const N: usize>(rules: &Cache<N>) -> impl FnMut(u64, Arrival) -> Rule {
    let generation = rules.generation();
    move |pc, arrival| {
        // The table has return addresses only; signals seldom arrive at the same place again.
        if arrival == Arrival::Interrupted {
            return compile::rule(pc, arrival);
        }
        rules.get(pc, generation).unwrap_or_else(|| {
            let rule = compile::rule(pc, arrival);
            rules.put(pc, generation, rule);
            rule
        })
    }
}

/// Notes that code may have gone, or other code taken its place. Call this after each `dlclose`.
pub fn code_changed() {
    RULES.invalidate();
    super::module::forget();
}
