//! How to get from a frame to its caller, in one word.

/// Where the canonical frame address is: the caller's stack pointer after the return. The return address
/// lies just below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cfa {
    /// The stack pointer plus this.
    Sp(i64),
    /// The frame pointer plus this.
    Bp(i64),
    /// The word at the frame pointer plus this: a function that realigns its stack.
    AtBp(i64),
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedBp {
    /// Still in the register.
    Same,
    /// In memory, at the canonical frame address plus this.
    AtCfa(i64),
    /// In memory, at the frame pointer plus this.
    AtBp(i64),
}

/// What kind of step a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The way on is unknown.
    End,
    /// The first function of the thread: its unwind table says that it has no caller.
    Outermost,
    /// The address is no code: the step that found it was wrong.
    NotCode,
    /// The kernel's frame for a signal handler: all registers are on the stack.
    Signal,
    /// To the caller.
    Caller(Cfa, SavedBp),
}

/// A [`Step`] and two flags, packed: bits 0 to 31 the offset of the [`Cfa`], 32 to 55 that of the
/// [`SavedBp`], both signed; 56 to 58 which step, 59 and 60 which [`SavedBp`], 61 and 62 the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub u64);

const STEP: u32 = 56;
const SAVED_BP: u32 = 59;
const AFTER_CALL: u64 = 1 << 61;
const GUESS: u64 = 1 << 62;

impl Rule {
    /// See [`Step::End`].
    pub const END: Rule = Rule(0);
    /// See [`Step::Outermost`].
    pub const OUTERMOST: Rule = Rule(6 << STEP);
    /// See [`Step::NotCode`].
    pub const NOT_CODE: Rule = Rule(1 << STEP);
    /// See [`Step::Signal`].
    pub const SIGNAL: Rule = Rule(2 << STEP);

    /// A step to the caller; [`Rule::END`] if an offset is too large to be packed.
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

    /// The convention that the frame pointer points at the caller's, below the return address, where
    /// nothing better is known. It is a guess: believed only if what it finds is [`Rule::after_call`].
    pub fn frame_pointer() -> Rule {
        Rule(Rule::caller(Cfa::Bp(16), SavedBp::AtCfa(-16)).0 | GUESS)
    }

    /// The same rule for an address that follows a call instruction, or does not.
    pub fn with_after_call(self, after_call: bool) -> Rule {
        Rule(self.0 & !AFTER_CALL | if after_call { AFTER_CALL } else { 0 })
    }

    /// Whether the address of the rule follows a call instruction, as far as it could be read.
    #[inline]
    pub fn after_call(self) -> bool {
        self.0 & AFTER_CALL != 0
    }

    /// Whether the rule is [`Rule::frame_pointer`].
    #[inline]
    pub fn is_guess(self) -> bool {
        self.0 & GUESS != 0
    }

    /// The step.
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
