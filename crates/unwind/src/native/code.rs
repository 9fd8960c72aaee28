//! Facts read from the bytes of code. They are read through the kernel, as the address may be
//! anything.

use super::memory::read;
use super::rule::{Cfa, Rule, SavedBp};

/// Length of the longest call instruction without prefixes.
const LONGEST_CALL: usize = 7;

/// True if the bytes before an address end in a call; false if they cannot be read.
pub fn follows_call(pc: u64) -> bool {
    // The call may be the first instruction in its page.
    read::<LONGEST_CALL>(pc.wrapping_sub(LONGEST_CALL as u64))
        .map(|bytes| is_call(&bytes))
        .or_else(|| read::<5>(pc.wrapping_sub(5)).map(|bytes| is_call(&bytes)))
        .or_else(|| read::<2>(pc.wrapping_sub(2)).map(|bytes| is_call(&bytes)))
        .unwrap_or(false)
}

/// True if bytes end in `call rel32` (e8) or in `call r/m64` (ff /2).
fn is_call(bytes: &[u8]) -> bool {
    let from_end = |n: usize| {
        let at = bytes.len().checked_sub(n)?;
        bytes.get(at).copied()
    };
    let indirect = |n: usize| {
        let (Some(0xff), Some(modrm)) = (from_end(n), from_end(n - 1)) else {
            return false;
        };
        let sib = if n > 2 { from_end(n - 2) } else { None };
        modrm >> 3 & 7 == 2 && 2 + after_modrm(modrm, sib.unwrap_or(0)) == n
    };
    from_end(5) == Some(0xe8) || [2, 3, 4, 6, 7].into_iter().any(indirect)
}

/// Number of bytes of an operand after its ModRM byte: a SIB byte, a displacement.
fn after_modrm(modrm: u8, sib: u8) -> usize {
    let has_sib = modrm >> 6 != 3 && modrm & 7 == 4;
    let base = if has_sib { sib & 7 } else { modrm & 7 };
    let displacement = match modrm >> 6 {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    usize::from(has_sib) + displacement
}

/// Makes the rule for a return address in one of CPython's perf trampolines (3.12 and later). They
/// are `sub rsp, 8; call rcx; add rsp, 8; ret` or `push rbp; mov rbp, rsp; call rcx; pop rbp; ret`.
pub fn trampoline(pc: u64) -> Option<Rule> {
    let called = read::<2>(pc.wrapping_sub(2))? == [0xff, 0xd1];
    if !called {
        None
    } else if read::<5>(pc) == Some([0x48, 0x83, 0xc4, 0x08, 0xc3]) {
        Some(Rule::caller(Cfa::Sp(16), SavedBp::Same))
    } else if read::<2>(pc) == Some([0x5d, 0xc3]) {
        Some(Rule::caller(Cfa::Sp(16), SavedBp::AtCfa(-16)))
    } else {
        None
    }
}
