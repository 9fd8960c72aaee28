//! Groups of places as they lie in the file, and the read of a place while its writers go on.

use std::sync::atomic::Ordering;

use crate::layout::live::{FREE, KEYS, WRITING};
use crate::ring::Word;

/// Seven blocks as they lie in the file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Group<W> {
    pub(super) keys: [W; KEYS],
    /// Number of blocks that would be here or in a group before, had there been room.
    pub(super) passed: W,
    pub(super) entries: [LiveEntry<W>; KEYS],
}

/// Entry of a block: the words of the event that made it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct LiveEntry<W> {
    /// Level by which the block found its home.
    pub(super) level: W,
    pub(super) words: [W; 7],
}

/// Number of times a reader reads an entry that changes meanwhile.
const LOOKS: usize = 4;

/// Entry of a block that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Size that the program asked for, in bytes.
    pub size: u64,
    /// Stack id of its allocation, 0 for none.
    pub stack: u32,
}

impl<W: Word> Group<W> {
    /// The first place that holds this key, or is [`FREE`].
    #[inline]
    fn place(&self, key: u64) -> Option<usize> {
        let mut places = self.keys.iter();
        places.position(|place| place.load(Ordering::Relaxed) == key)
    }

    /// Enters a block, and returns its place in the group. `None` if all places are taken.
    #[inline(always)]
    pub(super) fn put(&self, key: u64, level: usize, words: &[u64; 7]) -> Option<usize> {
        while let Some(at) = self.place(FREE) {
            let (place, entry) = (self.keys.get(at)?, self.entries.get(at)?);
            // Acquire: the writes here come after the reads made before the place was released.
            if place.swap_if(FREE, WRITING, Ordering::Acquire) {
                entry.level.store(level as u64, Ordering::Relaxed);
                entry.write(words);
                // Release: a thread that sees the key sees its entry.
                place.store(key, Ordering::Release);
                return Some(at);
            }
            // Another thread was faster: the next look sees that.
        }
        None
    }

    #[inline]
    pub(super) fn take(&self, key: u64) -> Option<(Removed, usize)> {
        let at = self.place(key)?;
        let (place, entry) = (self.keys.get(at)?, self.entries.get(at)?);
        let removed = entry.removed();
        let level = entry.level();
        // Release: the place is released after its entry was read.
        place.store(FREE, Ordering::Release);
        Some((removed, level))
    }

    #[inline]
    pub(super) fn is_passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed) != 0
    }
}

impl<W: Word> LiveEntry<W> {
    #[inline]
    pub(super) fn level(&self) -> usize {
        self.level.load(Ordering::Relaxed) as usize
    }

    #[inline]
    pub(super) fn removed(&self) -> Removed {
        let [_, _, who, _, size, _, _] = &self.words;
        Removed {
            size: size.load(Ordering::Relaxed),
            stack: (who.load(Ordering::Relaxed) >> 32) as u32,
        }
    }

    #[inline]
    pub(super) fn write(&self, words: &[u64; 7]) {
        for (at, (word, value)) in self.words.iter().zip(words).enumerate() {
            if at == 0 {
                // The ticks tell entries in the same place apart. Release: a reader that sees them
                // sees the place taken.
                word.store(*value, Ordering::Release);
                // A reader that sees any of the words after them also sees the ticks.
                W::fence(Ordering::Release);
            } else {
                word.store(*value, Ordering::Relaxed);
            }
        }
    }
}

/// Content of a place, as seen by [`look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// No block is in the place.
    Free,
    /// A block whose entry is being written, or changes during each look.
    Writing,
    /// A block: its key and the words of its event.
    Block(u64, [u64; 7]),
}

/// Looks at a place while its writers go on. Never returns a mix of the words of two blocks.
pub fn look<W: Word>(key: &W, words: &[W]) -> Seen {
    let Some(ticks) = words.first() else {
        return Seen::Free;
    };
    for _ in 0..LOOKS {
        // Acquire, twice: the key is at least as new as the ticks, and the words as the key.
        let before = ticks.load(Ordering::Acquire);
        let key = match key.load(Ordering::Acquire) {
            FREE => return Seen::Free,
            WRITING => return Seen::Writing,
            key => key,
        };
        let mut copy = [0; 7];
        for (to, from) in copy.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        W::fence(Ordering::Acquire);
        if ticks.load(Ordering::Relaxed) == before {
            return Seen::Block(key, copy);
        }
    }
    Seen::Writing
}
