//! Walks that a thread has made before, found again by the words of the stack that they depend on.
//!
//! A walk from a frame outwards depends on the registers of the frame, and on words of the stack
//! further out. These are return addresses and saved frame pointers. As long as all are the same and
//! no code has changed, the walk is the same. The words of all walks are [`Paths`] from the first
//! function of the thread inwards.
//!
//! After each walk, the walks that followed it the last two times are compared with the stack. A
//! comparison waits for all words at once. A walk goes from one word to the next and waits for
//! each rule: 70 ns a frame in a training, whose own work pushes rules out of the nearest caches
//! (docs/measurements/2026-11-24-first-minutes.md). If neither is there, frames are followed only
//! up to one of the last walk with unchanged words around it, see `noted`.

use std::cell::Cell;
use std::fmt;

use super::cache::Generation;
use super::memory::ThreadStack;
use super::mistakes::{Mistake, met_or};
use super::noted::{Noted, Word};
use super::step::Registers;
use crate::paths::{PathEnd, Paths};
use crate::{Frames, MAX_FRAMES};

/// Most walks that are known; then all are forgotten. A training step of a large model has some
/// hundred.
const WALKS: usize = 2048;
/// Different words that all walks depend on together.
const WORDS: usize = 1 << 16;
/// Most words of one walk: a frame needs its return address and perhaps two more.
pub(super) const DEPTH: usize = 3 * MAX_FRAMES;

/// Walks that one thread knows. A value of zeros knows none.
pub struct KnownWalks {
    /// Generation of the code when the first of the walks was made.
    generation: Cell<Generation>,
    /// Number of walks; they are numbered from 1 on.
    count: Cell<u16>,
    /// Number of the last walk, 0 for none.
    last: Cell<u16>,
    walks: [Walk; WALKS],
    /// Words of each walk, outermost first.
    words: Paths<Word, WORDS>,
    /// Words of the walk that is being made, innermost first.
    noted: [Cell<Word>; DEPTH],
    /// Words of the walk before, innermost first, and the path to each, while one is being made.
    before: [Cell<(PathEnd, Word)>; DEPTH],
    /// Number of frames that were followed by rules.
    followed: Cell<u64>,
}

pub(super) struct Walk {
    /// Stack pointer that it begins with.
    sp: Cell<u64>,
    /// Frame pointer that it begins with.
    pub(super) bp: Cell<u64>,
    end: Cell<PathEnd>,
    pub(super) frames: Cell<u16>,
    uses_bp: Cell<bool>,
    pub(super) is_whole: Cell<bool>,
    pub(super) is_cut: Cell<bool>,
    /// Walks that came after it, the last one first; 0 for none.
    next: [Cell<u16>; 2],
}

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
        let words = self.words.items(walk.end.get()).map(|(_, word)| word);
        let returns = words.filter(Word::is_return);
        for word in returns.take(walk.frames.get().into()) {
            frames.push(word.value());
        }
        frames.restore(walk.is_cut.get(), walk.is_whole.get());
    }

    /// Returns how many frames were followed by rules so far. All others were found again.
    pub fn followed(&self) -> u64 {
        self.followed.get()
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
        let last = self.walk_of(self.last.get());
        let expected = last.map_or([0, 0], |last| [last.next[0].get(), last.next[1].get()]);
        for (number, is_second) in expected.into_iter().zip([false, true]) {
            if let Some(walk) = self.walk_of(number)
                && self.is(walk, &at, stack)
            {
                if is_second && let Some(last) = last {
                    last.next[0].swap(&last.next[1]);
                }
                self.goes_on_with(number, walk);
                return Met(number.into());
            }
        }
        self.make(stack, at, frames, follow)
    }

    /// True if this walk begins with these registers and its words are unchanged.
    #[inline]
    fn is(&self, walk: &Walk, at: &Registers, stack: &ThreadStack) -> bool {
        if walk.sp.get() != at.sp || (walk.uses_bp.get() && walk.bp.get() != at.bp) {
            return false;
        }
        // The innermost word is the return address that the walk begins with.
        self.words.all(walk.end.get(), |word| {
            // SAFETY: this thread has read the word from its stack, above the same stack pointer.
            met_or(Mistake::KnownWords, unsafe { word.is_there(stack) })
        })
    }

    /// Notes the last walk, and prefetches the walk that is likely to come next.
    #[inline]
    fn goes_on_with(&self, number: u16, walk: &Walk) {
        self.last.set(number);
        if let Some(next) = self.walk_of(walk.next[0].get()) {
            self.words.fetch(next.end.get());
        }
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
        let last = self.walk_of(self.last.get());
        let mut words = 0;
        let its = last.map(|last| self.words.items(last.end.get()));
        for (place, word) in self.before.iter().zip(its.into_iter().flatten()) {
            place.set(word);
            words += 1;
        }
        let before = self.before.get(..words).unwrap_or_default();
        let noted = Noted::new(&self.noted, before, last, stack, &at);
        follow(&noted, frames);
        self.followed
            .set(self.followed.get() + noted.followed(frames) as u64);
        let Some(mut words) = noted.words().map(|words| words.iter().rev().map(Cell::get)) else {
            return Met::UNKNOWN;
        };
        let end = words.try_fold(noted.outer(), |end, word| self.words.longer(end, word));
        let first_bp = noted.uses_first_bp().then(|| Word::first_bp(at.bp));
        let with_bp = end.and_then(|end| match first_bp {
            Some(bp) => self.words.longer(end, bp),
            None => Some(end),
        });
        let label = with_bp.and_then(|end| self.words.label(end));
        let label = label.filter(|label| label.get() > 0 || self.has_room());
        let (Some(end), Some(label)) = (end, label) else {
            self.forget();
            return Met::UNKNOWN;
        };
        let is_new = label.get() == 0;
        if is_new {
            self.count.set(self.count.get() + 1);
            label.set(self.count.get().into());
        }
        let number = label.get() as u16;
        let Some(walk) = self.walk_of(number) else {
            return Met::UNKNOWN;
        };
        if is_new {
            walk.sp.set(at.sp);
            walk.bp.set(at.bp);
            walk.end.set(end);
            walk.frames.set(frames.as_slice().len() as u16);
            walk.uses_bp.set(first_bp.is_some());
            walk.is_whole.set(frames.is_whole());
            walk.is_cut.set(frames.is_cut());
            walk.next.iter().for_each(|next| next.set(0));
        }
        if let Some(last) = last {
            last.next[1].set(last.next[0].get());
            last.next[0].set(number);
        }
        self.goes_on_with(number, walk);
        if !is_new {
            frames.clear();
        }
        Met(u32::from(number) | if is_new { NEW } else { 0 })
    }

    fn has_room(&self) -> bool {
        usize::from(self.count.get()) < WALKS
    }

    /// Forgets all walks, whose numbers are used again.
    fn forget(&self) {
        self.count.set(0);
        self.last.set(0);
        self.words.forget();
    }

    #[inline]
    fn walk_of(&self, number: u16) -> Option<&Walk> {
        self.walks.get(usize::from(number).checked_sub(1)?)
    }
}

impl fmt::Debug for KnownWalks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} known walks", self.count.get())
    }
}
