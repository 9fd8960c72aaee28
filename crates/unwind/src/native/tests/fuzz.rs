//! Tests with made-up stacks and rules.

use std::cell::RefCell;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::stacks::{Guarded, in_a_handler};
use crate::Frames;
use crate::native::cache::Cache;
use crate::native::memory::{Memory, ThreadStack};
use crate::native::rule::{Cfa, Rule, SavedBp};
use crate::native::step::{Registers, unwind};
use crate::native::walk::rules_of;

/// A stack of a few words at address `LOW`, with a note of the addresses that were read.
struct Words {
    words: Vec<u64>,
    asked: RefCell<Vec<u64>>,
}

const LOW: u64 = 1 << 40;

impl Words {
    fn new(words: Vec<u64>) -> Words {
        Words {
            words,
            asked: RefCell::default(),
        }
    }
}

impl Memory for Words {
    fn word(&self, address: u64) -> Option<u64> {
        self.asked.borrow_mut().push(address);
        let offset = address.checked_sub(LOW)?;
        let word = offset.is_multiple_of(8).then_some(offset / 8)?;
        self.words.get(word as usize).copied()
    }
}

#[test]
fn every_kind_of_step() {
    let at = |word: u64| LOW + 8 * word;
    let mut words = vec![0; 64];
    // 0x10000: sp + 24, bp saved in the second word.
    (words[0], words[2]) = (at(5), 0x20000);
    // 0x20000: bp + 16, bp saved below the return address.
    (words[5], words[6]) = (at(10), 0x30000);
    // 0x30000: the word below bp says where, bp saved where bp points.
    (words[9], words[10], words[12]) = (at(13), at(50), 0x40000);
    // 0x40000: a signal frame at word 13: bp, sp, pc at 120, 160 and 168 bytes.
    (words[28], words[33], words[34]) = (at(40), at(38), 0x50000);
    // 0x50000: frame pointers, then the end.
    (words[40], words[41]) = (7, 0x60000);
    let rule = |pc: u64| match pc {
        0x10000 => Rule::caller(Cfa::Sp(24), SavedBp::AtCfa(-24)),
        0x20000 => Rule::caller(Cfa::Bp(16), SavedBp::AtCfa(-16)),
        0x30000 => Rule::caller(Cfa::AtBp(-8), SavedBp::AtBp(0)),
        0x40000 => Rule::SIGNAL,
        0x50000 => Rule::frame_pointer(),
        _ => Rule::END.with_after_call(true),
    };
    let first = Registers {
        pc: 0x10000,
        sp: LOW,
        bp: 3,
    };
    let mut frames = Frames::new();
    unwind(first, &Words::new(words), |pc, _| rule(pc), &mut frames);
    let expected = [0x10000, 0x20000, 0x30000, 0x40000, 0x50000, 0x60000];
    assert_eq!(frames.as_slice(), expected);
}

/// Addresses of code that real stacks go through, with the kernel's return from signals, and of
/// code that does not follow a call.
fn real_code() -> &'static [u64] {
    static CODE: LazyLock<Vec<u64>> = LazyLock::new(|| {
        let mut code = in_a_handler(0);
        let functions = [libc::qsort as *const (), libc::malloc as *const ()];
        code.extend(functions.map(|f| f as u64 + 9));
        code
    });
    &CODE
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Walks any words by any rules: each step rises, so a small stack has few frames.
    #[test]
    fn any_rules_come_to_an_end(
        words in prop::collection::vec(prop_oneof![
            3 => (0..48u64).prop_map(|w| LOW + 8 * w),
            3 => 0x1000..0x2000u64,
            1 => any::<u64>(),
        ], 1..48),
        rules in prop::collection::vec(prop_oneof![
            2 => (0..8i64, 0..4i64).prop_map(|(sp, bp)|
                Rule::caller(Cfa::Sp(8 * sp), SavedBp::AtCfa(-8 * bp))),
            2 => (-4..8i64, -4..4i64).prop_map(|(cfa, bp)|
                Rule::caller(Cfa::Bp(8 * cfa), SavedBp::AtBp(8 * bp))),
            1 => (-4..8i64).prop_map(|cfa| Rule::caller(Cfa::AtBp(8 * cfa), SavedBp::Same)),
            1 => Just(Rule::frame_pointer().with_after_call(true)),
            1 => Just(Rule::SIGNAL),
            1 => any::<u64>().prop_map(Rule),
        ], 1..16),
        sp in 0..40u64,
        bp in 0..40u64,
    ) {
        let memory = Words::new(words);
        let first = Registers { pc: 0x1000, sp: LOW + 8 * sp, bp: LOW + 8 * bp };
        let mut frames = Frames::new();
        let rule = |pc: u64| rules[pc as usize % rules.len()];
        unwind(first, &memory, |pc, _| rule(pc), &mut frames);
        // The walk goes up once, and once more after the one change of stacks.
        prop_assert!(frames.as_slice().len() <= 2 * memory.words.len() + 3);
        prop_assert!(memory.asked.borrow().len() <= 4 * frames.as_slice().len());
    }

    /// Walks random words by real rules, in memory that faults on either side.
    #[test]
    fn rubbish_does_no_harm(
        words in prop::collection::vec((0..8u8, any::<u64>()), 512..=512),
        from in 0..512u64,
        bp in any::<u64>(),
        pick in any::<prop::sample::Index>(),
    ) {
        static RULES: Cache<64> = Cache::new();
        let code = real_code();
        let stack = Guarded::new(4096);
        let (low, high) = (stack.low() as u64, stack.high() as u64);
        for (i, (kind, random)) in words.iter().enumerate() {
            let word = match kind {
                0..4 => code[*random as usize % code.len()],
                4..6 => low + random % 512 * 8,
                6 => random % 4096,
                _ => *random,
            };
            // SAFETY: inside the mapping of 512 words.
            unsafe { stack.low().cast::<u64>().add(i).write(word) };
        }
        let sp = low + 8 * from;
        let first = Registers {
            pc: code[pick.index(code.len())],
            sp,
            bp: if bp % 2 == 0 { low + bp % 4096 } else { bp },
        };
        // SAFETY: the mapping, which lives until the end of this function.
        let memory = unsafe { ThreadStack::between(sp, high) };
        let mut frames = Frames::new();
        unwind(first, &memory, rules_of(&RULES), &mut frames);
        prop_assert!(!frames.as_slice().is_empty());
        prop_assert!(frames.as_slice().len() as u64 <= 2 * (512 - from) + 3);
    }
}
