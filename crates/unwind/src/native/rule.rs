//! Steps from a frame to its caller, each in one word.

/// Canonical frame address: the caller's stack pointer after the return. The return address lies
/// just below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// The stack pointer plus this offset.
    Sp(i64),
    /// The frame pointer plus this offset.
    Bp(i64),
    /// The word at the frame pointer plus this offset: a function that realigns its stack.
    AtBp(i64),
}

/// Place of the caller's frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedBp {
    /// The register: it is unchanged.
    Same,
    /// Memory at the canonical frame address plus this offset.
    AtCfa(i64),
    /// Memory at the frame pointer plus this offset.
    AtBp(i64),
}

/// Kind of a step by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No step: the caller is unknown.
    End,
    /// The first function of the thread: its unwind table says that it has no caller.
    Outermost,
    /// The address is no code: the step that found it was wrong.
    NotCode,
    /// The kernel's frame for a signal handler: all registers are on the stack.
    Signal,
    /// A step to the calling function.
    Caller(Cfa, SavedBp),
}

/// A [`Step`] and two flags, packed:
/// - Bits 0 to 31: the offset of the [`Cfa`], signed.
/// - Bits 32 to 55: the offset of the [`SavedBp`], signed.
/// - Bits 56 to 58: the kind of step.
/// - Bits 59 and 60: the kind of [`SavedBp`].
/// - Bits 61 and 62: the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub u64);

const STEP: u32 = 56;
const SAVED_BP: u32 = 59;
const AFTER_CALL: u64 = 1 << 61;
const GUESS: u64 = 1 << 62;

impl Rule {
    /// Packed form of [`Step::End`].
    pub const END: Rule = Rule(0);
    /// Packed form of [`Step::Outermost`].
    pub const OUTERMOST: Rule = Rule(6 << STEP);
    /// Packed form of [`Step::NotCode`].
    pub const NOT_CODE: Rule = Rule(1 << STEP);
    /// Packed form of [`Step::Signal`].
    pub const SIGNAL: Rule = Rule(2 << STEP);

    /// Makes the rule of a step to the caller; [`Rule::END`] if an offset is too large to be
    /// packed.
    pub fn caller(cfa: Cfa, bp: SavedBp) -> Rule {
        let (step, offset) = match cfa {
            Cfa::Sp(offset) => (3, offset),
            Cfa::Bp(offset) => (4, offset),
            Cfa::AtBp(offset) => (5, offset),
        };
        let (saved, bp) = match bp {
            SavedBp::Same => (0, 0),
            SavedBp::AtCfa(offset) => (1, offset),
            SavedBp::AtBp(offset) => (2, offset),
        };
        if i32::try_from(offset).is_err() || bp << 40 >> 40 != bp {
            return Rule::END;
        }
        let (offset, bp) = (offset as u32 as u64, (bp as u64) << 40 >> 8);
        Rule(offset | bp | saved << SAVED_BP | step << STEP)
    }

    /// Makes the rule of the convention that the frame pointer points at the caller's, below the
    /// return address. It is a guess, for code without a better rule. A walk believes it only if
    /// the address found is [`Rule::after_call`].
    pub fn frame_pointer() -> Rule {
        Rule(Rule::caller(Cfa::Bp(16), SavedBp::AtCfa(-16)).0 | GUESS)
    }

    /// Sets the flag of an address that follows a call instruction, or clears it.
    pub fn with_after_call(self, after_call: bool) -> Rule {
        Rule(self.0 & !AFTER_CALL | if after_call { AFTER_CALL } else { 0 })
    }

    /// True if the address of the rule follows a call instruction, as far as it could be read.
    #[inline]
    pub fn after_call(self) -> bool {
        self.0 & AFTER_CALL != 0
    }

    /// True if the rule is [`Rule::frame_pointer`].
    #[inline]
    pub fn is_guess(self) -> bool {
        self.0 & GUESS != 0
    }

    /// Unpacks the step of the rule.
    #[inline]
    pub fn step(self) -> Step {
        let offset = i64::from(self.0 as i32);
        let cfa = match self.0 >> STEP & 7 {
            1 => return Step::NotCode,
            2 => return Step::Signal,
            6 => return Step::Outermost,
            3 => Cfa::Sp(offset),
            4 => Cfa::Bp(offset),
            5 => Cfa::AtBp(offset),
            _ => return Step::End,
        };
        let bp = (self.0 << 8) as i64 >> 40;
        let bp = match self.0 >> SAVED_BP & 3 {
            1 => SavedBp::AtCfa(bp),
            2 => SavedBp::AtBp(bp),
            _ => SavedBp::Same,
        };
        Step::Caller(cfa, bp)
    }
}
