//! Walks that a thread has made before, found again by the words of the stack that they depend on.
//!
//! A walk depends on the registers that it begins with, on the return addresses, and on the frame
//! pointers that it follows. As long as these are the same and no code has changed, the walk is the
//! same. A program in a loop makes the same walks in the same order. So the walks are tried that its
//! [history](History) expects.
//!
//! A walk goes from one word of the stack to the next and waits for each rule. This comparison
//! waits for all words at once. A training's own work pushes rules out of the nearest caches. There
//! a walk takes 70 ns a frame, and the comparison a few ns. (GPT-2 on a machine with an H100,
//! docs/measurements/2026-11-24-first-minutes.md.)

use std::cell::Cell;

use super::cache::Generation;
use super::memory::{Memory, ThreadStack};
use super::step::Registers;
use crate::{Frames, History};

/// Most walks that are known; then all are forgotten. A training step of a large model has some
/// hundred.
const WALKS: usize = 2048;
/// Words of the stack that all walks depend on together.
const WORDS: usize = 1 << 16;
/// Number of words that are compared before the result is tested.
const AT_ONCE: usize = 8;

/// Walks that one thread knows. A value of zeros knows none.
#[derive(Debug)]
pub struct KnownWalks {
    /// Generation of the code when the first of the walks was made.
    generation: Cell<Generation>,
    /// Number of walks; they are numbered from 1 on.
    count: Cell<usize>,
    /// Number of words that the walks depend on.
    words: Cell<usize>,
    /// Numbers of the last walks.
    history: History,
    walks: [Walk; WALKS],
    /// Numbers of walks, each at or after the place that its hash gives; 0 for none.
    by_hash: [Cell<u16>; 2 * WALKS],
    /// Place of each word, in words above the stack pointer, and [`RETURN`].
    places: [Cell<u32>; WORDS],
    values: [Cell<u64>; WORDS],
}

#[derive(Debug)]
struct Walk {
    hash: Cell<u64>,
    /// Registers that it begins with.
    pc: Cell<u64>,
    sp: Cell<u64>,
    bp: Cell<u64>,
    /// Index of its first word.
    from: Cell<u32>,
    /// Number of words that it has.
    words: Cell<u16>,
    frames: Cell<u16>,
    uses_bp: Cell<bool>,
    is_whole: Cell<bool>,
    is_cut: Cell<bool>,
    /// Last place in the history.
    latest: Cell<u16>,
}

/// Mark in a place: the word is a return address.
const RETURN: u32 = 1 << 31;

/// Result of a search for a known walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Met(u32);

/// Mark in a [`Met`]: the walk was not known before.
const NEW: u32 = 1 << 31;

impl Met {
    /// The walk can be followed only frame by frame, and is not kept.
    pub const UNKNOWN: Met = Met(0);

    /// Number of the walk, less than [`KnownWalks::MOST`], and true if it was not known before. An
    /// earlier walk may have had the same number. `None`: it has none.
    #[inline]
    pub fn walk(self) -> Option<(usize, bool)> {
        (self.0 != 0).then_some(((self.0 & !NEW) as usize, self.0 & NEW != 0))
    }
}

impl KnownWalks {
    /// Limit of the numbers of walks: all are less.
    pub const MOST: usize = WALKS + 1;

    /// Fills `frames` with those of a known walk that was met last. Does nothing for a new or
    /// unknown walk.
    pub fn copy(&self, met: Met, frames: &mut Frames) {
        let Some((number, false)) = met.walk() else {
            return;
        };
        let Some(walk) = self.walk_of(number as u16) else {
            return;
        };
        frames.clear();
        frames.push(walk.pc.get());
        let words = self.words_of(walk);
        let returns = words.filter(|(place, _)| place.get() & RETURN != 0);
        for (_, value) in returns.take(usize::from(walk.frames.get()).saturating_sub(1)) {
            frames.push(value.get());
        }
        frames.restore(walk.is_cut.get(), walk.is_whole.get());
    }

    /// Number of the walk that is compared first.
    #[cfg(test)]
    pub(super) fn expected(&self) -> usize {
        self.history.expected().into()
    }

    /// Finds the walk from some registers again, or makes it by `follow` and keeps it.
    #[inline]
    pub(super) fn walk(
        &self,
        generation: Generation,
        stack: &ThreadStack,
        at: Registers,
        frames: &mut Frames,
        follow: impl FnOnce(&Noted, &mut Frames),
    ) -> Met {
        if self.generation.get() != generation {
            self.forget();
            self.generation.set(generation);
        }
        let is = |number| {
            let walk = self.walk_of(number);
            walk.is_some_and(|walk| self.is(walk, &at, stack))
        };
        if let Some(number) = self.history.find(is)
            && let Some(walk) = self.walk_of(number)
        {
            self.history.add(number, &walk.latest, true);
            return Met(number.into());
        }
        self.make(stack, at, frames, follow)
    }

    /// True if this walk begins with these registers and its words are unchanged.
    #[inline]
    fn is(&self, walk: &Walk, at: &Registers, stack: &ThreadStack) -> bool {
        if walk.sp.get() != at.sp
            || walk.pc.get() != at.pc
            || (walk.uses_bp.get() && walk.bp.get() != at.bp)
        {
            return false;
        }
        let from = walk.from.get() as usize;
        let all = from..from + usize::from(walk.words.get());
        let (Some(places), Some(values)) = (self.places.get(all.clone()), self.values.get(all))
        else {
            return false;
        };
        let differs = |(place, value): (&Cell<u32>, &Cell<u64>)| {
            let address = at.sp + u64::from(place.get() & !RETURN) * 8;
            // SAFETY: this thread has read the word from its stack, above the same stack pointer.
            unsafe { stack.known_word(address) ^ value.get() }
        };
        // Without a branch for each word, the loads need not wait for each other.
        let mut chunks = places.chunks(AT_ONCE).zip(values.chunks(AT_ONCE));
        chunks.all(|(places, values)| {
            let words = places.iter().zip(values);
            words.map(differs).fold(0, |all, one| all | one) == 0
        })
    }

    #[cold]
    #[inline(never)]
    fn make(
        &self,
        stack: &ThreadStack,
        at: Registers,
        frames: &mut Frames,
        follow: impl FnOnce(&Noted, &mut Frames),
    ) -> Met {
        let noted = Noted::new(self, stack, at.sp);
        follow(&noted, frames);
        let Some(words) = noted.words() else {
            if noted.is_full.get() {
                self.forget();
            }
            return Met::UNKNOWN;
        };
        let from = self.words.get();
        let hash = self.hash(&at, from..from + words);
        let (number, is_new) = match self.find(hash, |walk| self.is(walk, &at, stack)) {
            Some(number) => (number, false),
            None if self.count.get() == WALKS => {
                self.forget();
                return Met::UNKNOWN;
            }
            None => {
                let number = (self.count.get() + 1) as u16;
                self.count.set(number.into());
                self.words.set(from + words);
                (number, true)
            }
        };
        let Some(walk) = self.walk_of(number) else {
            return Met::UNKNOWN;
        };
        if is_new {
            walk.hash.set(hash);
            walk.pc.set(at.pc);
            walk.sp.set(at.sp);
            walk.bp.set(at.bp);
            walk.from.set(from as u32);
            walk.words.set(words as u16);
            walk.frames.set(frames.as_slice().len() as u16);
            walk.uses_bp.set(noted.uses_first_bp.get());
            walk.is_whole.set(frames.is_whole());
            walk.is_cut.set(frames.is_cut());
            self.enter(hash, number);
        }
        self.history.add(number, &walk.latest, false);
        if !is_new {
            frames.clear();
        }
        Met(u32::from(number) | if is_new { NEW } else { 0 })
    }

    /// Forgets all walks, whose numbers are used again.
    fn forget(&self) {
        self.count.set(0);
        self.words.set(0);
        self.history.clear();
        self.by_hash.iter().for_each(|number| number.set(0));
    }

    #[inline]
    fn walk_of(&self, number: u16) -> Option<&Walk> {
        self.walks.get(usize::from(number).checked_sub(1)?)
    }

    fn words_of(&self, walk: &Walk) -> impl Iterator<Item = (&Cell<u32>, &Cell<u64>)> {
        let from = walk.from.get() as usize;
        let words = self.places.iter().zip(&self.values);
        words.skip(from).take(walk.words.get().into())
    }

    fn hash(&self, at: &Registers, words: std::ops::Range<usize>) -> u64 {
        let mix = |hash: u64, value: u64| (hash.rotate_left(26) ^ value).wrapping_mul(FACTOR);
        let places = self.places.get(words.clone()).unwrap_or_default();
        let values = self.values.get(words).unwrap_or_default();
        let words = places.iter().zip(values);
        words.fold(mix(at.pc, at.sp), |hash, (place, value)| {
            mix(mix(hash, place.get().into()), value.get())
        })
    }

    /// Places where a walk with this hash may be, in the order in which they are used.
    fn places_of(&self, hash: u64) -> impl Iterator<Item = &Cell<u16>> {
        let first = (hash >> 32) as usize % self.by_hash.len();
        let all = self.by_hash.iter().cycle().skip(first);
        all.take(self.by_hash.len())
    }

    fn find(&self, hash: u64, is: impl Fn(&Walk) -> bool) -> Option<u16> {
        let taken = self.places_of(hash).map(Cell::get);
        let mut taken = taken.take_while(|number| *number != 0);
        taken.find(|number| {
            let walk = self.walk_of(*number);
            walk.is_some_and(|walk| walk.hash.get() == hash && is(walk))
        })
    }

    fn enter(&self, hash: u64, number: u16) {
        // There are twice as many places as walks.
        let mut free = self.places_of(hash).filter(|place| place.get() == 0);
        if let Some(place) = free.next() {
            place.set(number);
        }
    }
}

/// Bits of the golden ratio. Each bit of a product depends on all lower bits of the other factor.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The stack, with a note of each word that a walk depends on. The notes are put after the words of
/// the known walks.
pub(super) struct Noted<'a> {
    known: &'a KnownWalks,
    stack: &'a ThreadStack,
    /// Stack pointer that the walk begins with.
    sp: u64,
    end: Cell<usize>,
    /// Source of the frame pointer.
    bp: Cell<Bp>,
    uses_first_bp: Cell<bool>,
    is_full: Cell<bool>,
    /// True if the walk depends on more than these words.
    is_odd: Cell<bool>,
}

/// Source of the frame pointer of a frame.
#[derive(Clone, Copy)]
enum Bp {
    /// The register that the walk began with.
    First,
    /// A word at this place with this value, not noted yet.
    Saved(u32, u64),
    /// A word that is noted already.
    Noted,
}

impl<'a> Noted<'a> {
    fn new(known: &'a KnownWalks, stack: &'a ThreadStack, sp: u64) -> Noted<'a> {
        Noted {
            known,
            stack,
            sp,
            end: Cell::new(known.words.get()),
            bp: Cell::new(Bp::First),
            uses_first_bp: Cell::new(false),
            is_full: Cell::new(false),
            is_odd: Cell::new(false),
        }
    }

    /// Number of words that the walk depends on. `None` if they do not tell it apart from every
    /// other walk.
    fn words(&self) -> Option<usize> {
        let words = self.end.get() - self.known.words.get();
        let fits = !self.is_full.get() && words <= usize::from(u16::MAX);
        (fits && !self.is_odd.get()).then_some(words)
    }

    fn place(&self, address: u64) -> Option<u32> {
        let above = address.checked_sub(self.sp)? / 8;
        u32::try_from(above)
            .ok()
            .filter(|place| place & RETURN == 0)
    }

    fn note(&self, place: u32, value: u64) {
        let at = self.end.get();
        match (self.known.places.get(at), self.known.values.get(at)) {
            (Some(places), Some(values)) => {
                places.set(place);
                values.set(value);
                self.end.set(at + 1);
            }
            _ => self.is_full.set(true),
        }
    }

    fn read(&self, address: u64, flag: u32) -> Option<u64> {
        let value = self.stack.word(address)?;
        match self.place(address) {
            Some(place) => self.note(place | flag, value),
            None => self.is_odd.set(true),
        }
        Some(value)
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
        let value = self.stack.word(address)?;
        match self.place(address) {
            Some(place) => self.bp.set(Bp::Saved(place, value)),
            None => self.is_odd.set(true),
        }
        Some(value)
    }

    fn uses_bp(&self) {
        match self.bp.replace(Bp::Noted) {
            Bp::First => self.uses_first_bp.set(true),
            Bp::Saved(place, value) => self.note(place, value),
            Bp::Noted => {}
        }
    }

    fn leaves_handler(&self) {
        self.is_odd.set(true);
    }
}
