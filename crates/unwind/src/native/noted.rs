//! The words that a walk depends on, noted while it is made, and the frame of the last walk at
//! which it can end.
//!
//! The words of a walk are in groups, in the order in which it reads them. The group of a frame is
//! the return address that leads into the frame, and the saved frame pointer that the frame has, if
//! it is used. Words after a group are all that the walk from this frame outwards reads. So that
//! part of a walk is the same as in the last one under four conditions:
//!
//! - the return address is the same and lies at the same place;
//! - the words after the group are unchanged;
//! - the frame pointer has the same value, if the outer part uses it;
//! - as many frames fit as before.

use std::cell::Cell;

use super::known::Walk;
use super::memory::{Memory, ThreadStack};
use super::mistakes::{Mistake, met_or};
use super::step::Registers;
use crate::paths::PathEnd;
use crate::{Frames, MAX_FRAMES};

/// Word of the stack, with its address and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Word {
    /// The address, and in the lower three bits the use.
    place: u64,
    value: u64,
}

/// The word is a return address.
const RETURN: u64 = 1;
/// The word is the frame pointer of the frame whose return address is the word before.
const SAVED_BP: u64 = 2;
/// In a return address: the frame has a frame pointer that is used, by it or further out. In a
/// saved frame pointer: it is used.
const USED_BP: u64 = 4;
const USES: u64 = 7;

impl Word {
    /// Returns the register with the frame pointer, as if it were a word of the stack.
    pub fn first_bp(value: u64) -> Word {
        Word { place: 0, value }
    }

    /// True if it is a return address.
    #[inline]
    pub fn is_return(&self) -> bool {
        self.place & RETURN != 0
    }

    /// Returns the value that the word has in the walk.
    #[inline]
    pub fn value(&self) -> u64 {
        self.value
    }

    fn is_saved_bp(self) -> bool {
        self.place & SAVED_BP != 0
    }

    fn uses_bp(self) -> bool {
        self.place & USED_BP != 0
    }

    fn with_used_bp(self, is_used: bool) -> Word {
        let place = self.place & !USED_BP | if is_used { USED_BP } else { 0 };
        Word { place, ..self }
    }

    #[inline]
    fn address(&self) -> u64 {
        self.place & !USES
    }

    /// True if the stack has this word.
    ///
    /// # Safety
    /// The calling thread has read the word from its stack, whose lowest address was not less than
    /// that of `stack`.
    #[inline]
    pub unsafe fn is_there(&self, stack: &ThreadStack) -> bool {
        // SAFETY: as the caller promises.
        unsafe { stack.known_word(self.address()) == self.value }
    }
}

/// The stack, with a note of each word that a walk depends on.
pub struct Noted<'a> {
    stack: &'a ThreadStack,
    notes: &'a [Cell<Word>],
    /// Number of notes, innermost word first.
    count: Cell<usize>,
    /// Index of the saved frame pointer of the present frame. `None`: it is the register that the
    /// walk began with.
    bp: Cell<Option<usize>>,
    uses_first_bp: Cell<bool>,
    /// True if the walk depends on more than these words.
    is_odd: Cell<bool>,
    last: Option<LastWalk<'a>>,
    /// Path of the outer words of the last walk with which this one ends, and its frames.
    outer: Cell<(PathEnd, usize)>,
}

/// Words of the last walk, which is followed outwards beside the new one.
struct LastWalk<'a> {
    walk: &'a Walk,
    /// Words, innermost first, and the path to each.
    words: &'a [Cell<(PathEnd, Word)>],
    /// Index from which on all words are unchanged.
    unchanged_from: usize,
    /// Number of words further in than the present frame of the new walk.
    inner: Cell<usize>,
    /// Number of frames further in.
    passed: Cell<usize>,
}

impl<'a> Noted<'a> {
    pub(super) fn new(
        notes: &'a [Cell<Word>],
        words: &'a [Cell<(PathEnd, Word)>],
        last: Option<&'a Walk>,
        stack: &'a ThreadStack,
        at: &Registers,
    ) -> Noted<'a> {
        let is_changed = |word: &Cell<(PathEnd, Word)>| {
            let (_, word) = word.get();
            stack.word(word.address()) != Some(word.value)
        };
        let last = last.map(|walk| LastWalk {
            walk,
            words,
            unchanged_from: words.iter().rposition(is_changed).map_or(0, |at| at + 1),
            inner: Cell::new(0),
            passed: Cell::new(0),
        });
        let noted = Noted {
            stack,
            notes,
            count: Cell::new(0),
            bp: Cell::new(None),
            uses_first_bp: Cell::new(false),
            is_odd: Cell::new(false),
            last,
            outer: Cell::new((PathEnd::default(), 0)),
        };
        noted.note(at.sp - 8, RETURN, at.pc);
        noted
    }

    /// Returns the words that the walk depends on, innermost first. The outer words of the last walk
    /// are left out. `None` if other walks may have the same words.
    pub fn words(&self) -> Option<&[Cell<Word>]> {
        let notes = self.notes.get(..self.count.get())?;
        let mut is_bp_used = self.uses_first_bp.get();
        let mut count = 0;
        for (place, note) in notes.iter().enumerate() {
            let mut word = note.get();
            if word.is_saved_bp() && !word.uses_bp() {
                continue;
            }
            if word.is_return() {
                let own = notes.get(place + 1).map(Cell::get);
                let own = own.filter(|next| next.is_saved_bp());
                is_bp_used = own.map_or(is_bp_used, Word::uses_bp);
                word = word.with_used_bp(is_bp_used);
            }
            notes.get(count)?.set(word);
            count += 1;
        }
        let notes = notes.get(..count)?;
        (!self.is_odd.get()).then_some(notes)
    }

    /// True if the walk depends on the frame pointer that it began with.
    pub fn uses_first_bp(&self) -> bool {
        self.uses_first_bp.get()
    }

    /// Returns the path of the words of the last walk that are the outer words of this one, too.
    pub fn outer(&self) -> PathEnd {
        self.outer.get().0
    }

    /// Returns how many of the frames were followed by rules.
    pub fn followed(&self, frames: &Frames) -> usize {
        frames.as_slice().len() - self.outer.get().1
    }

    fn note(&self, address: u64, uses: u64, value: u64) -> usize {
        let at = self.count.get();
        match self.notes.get(at) {
            Some(note) => {
                let place = address | uses;
                note.set(Word { place, value });
                self.count.set(at + 1);
            }
            None => self.is_odd.set(true),
        }
        at
    }

    fn read(&self, address: u64, uses: u64) -> Option<u64> {
        let value = self.stack.word(address);
        match value {
            Some(value) => {
                self.note(address, uses, value);
            }
            // A walk that begins further in could read it.
            None if self.stack.is_below(address) => self.is_odd.set(true),
            None => {}
        }
        value
    }
}

impl LastWalk<'_> {
    fn word(&self, at: usize) -> Option<Word> {
        self.words.get(at).map(|word| word.get().1)
    }

    /// Returns the index of the return address at an address.
    fn find(&self, address: u64) -> Option<usize> {
        loop {
            let at = self.inner.get();
            let word = self.word(at)?;
            if word.is_return() && word.address() >= address {
                return (word.address() == address).then_some(at);
            }
            self.inner.set(at + 1);
            self.passed
                .set(self.passed.get() + usize::from(word.is_return()));
        }
    }

    /// Returns the frame pointer of the frame whose return address has this index: its own, or that
    /// of the nearest frame further in.
    fn bp(&self, at: usize) -> u64 {
        let inner = self.words.get(..at).unwrap_or_default().iter().rev();
        let inner = inner.map(|word| word.get().1);
        let mut sources = self.word(at + 1).into_iter().chain(inner);
        let saved = sources.find(|word| word.is_saved_bp());
        saved.map_or(self.walk.bp.get(), |word| word.value)
    }
}

impl Memory for Noted<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        self.read(address, 0)
    }

    fn return_address(&self, address: u64) -> Option<u64> {
        self.read(address, RETURN)
    }

    fn saved_bp(&self, address: u64) -> Option<u64> {
        let at = self.count.get();
        let value = self.read(address, SAVED_BP);
        self.bp.set(Some(at));
        value
    }

    fn uses_bp(&self) {
        match self.bp.get() {
            None => self.uses_first_bp.set(true),
            Some(at) => {
                if let Some(note) = self.notes.get(at) {
                    note.set(note.get().with_used_bp(true));
                }
            }
        }
    }

    fn leaves_handler(&self) {
        self.is_odd.set(true);
    }

    fn ends_as_before(&self, at: &Registers, frames: &mut Frames) -> bool {
        let Some(last) = &self.last else { return false };
        let Some(place) = last.find(at.sp.wrapping_sub(8)) else {
            return false;
        };
        let Some(own) = last.word(place) else {
            return false;
        };
        let has_own_bp = last.word(place + 1).is_some_and(Word::is_saved_bp);
        let outer = place + 1 + usize::from(has_own_bp);
        let has_bp = !own.uses_bp() || last.bp(place) == at.bp;
        if !met_or(Mistake::OuterWords, outer >= last.unchanged_from)
            || !met_or(Mistake::ReturnAddress, own.value == at.pc)
            || !met_or(Mistake::FramePointer, has_bp)
        {
            return false;
        }
        let more = usize::from(last.walk.frames.get()).saturating_sub(last.passed.get());
        let all = frames.as_slice().len() + more;
        let fits = match last.walk.is_cut.get() {
            true => all == MAX_FRAMES,
            false => all <= MAX_FRAMES,
        };
        if more == 0 || !met_or(Mistake::Count, fits) {
            return false;
        }
        if own.uses_bp() {
            self.uses_bp();
        }
        let outwards = last.words.get(place..).unwrap_or_default().iter();
        let returns = outwards.map(|word| word.get().1).filter(Word::is_return);
        for word in returns.take(more) {
            frames.push(word.value);
        }
        frames.restore(last.walk.is_cut.get(), last.walk.is_whole.get());
        let path = last.words.get(outer).map(|word| word.get().0);
        self.outer.set((path.unwrap_or_default(), more));
        true
    }
}
