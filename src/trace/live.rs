//! The live table: every block that is live now, exact at every instant, whatever kills the process.
//!
//! A hash table of groups of seven keys: one cache line says whether a block is in a group, another is
//! its entry. A block that finds its home group full goes on to the next, and each group that it passed
//! counts it: a search ends at the first group that nobody passed, so that a removal leaves no trace and
//! the table never has to be cleaned.
//!
//! No lock and no heap. What is required of the caller: a block is inserted, then removed, then inserted
//! again, each before the other and once. Who hands blocks out under a lock keeps that by itself.

use std::sync::atomic::Ordering;

use super::event::Event;
use super::layout::live::{FREE, KEYS, WRITING};
use super::ring::{Word, prefetch};

#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;

/// Seven blocks as they lie in the file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Group<W> {
    keys: [W; KEYS],
    /// Blocks that would be here or in a group before, had there been room.
    passed: W,
    entries: [Entry<W>; KEYS],
}

/// What is known of a block: the words of the event that made it.
#[derive(Debug)]
#[repr(C, align(64))]
struct Entry<W> {
    unused: W,
    words: [W; 7],
}

/// How many groups a block tries, from its home on.
const TRIES: usize = 32;

/// How often a reader looks at an entry that changes under its eyes.
const LOOKS: usize = 4;

/// What was known of a block that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Bytes asked for.
    pub size: u64,
    /// Stack id of its allocation, 0 for none.
    pub stack: u32,
}

/// A view of the groups of a live table.
#[derive(Debug)]
pub struct Live<'a, W> {
    /// Blocks that found no place.
    missed: &'a W,
    groups: &'a [Group<W>],
}

impl<'a, W: Word> Live<'a, W> {
    /// A table over these groups.
    pub fn new(missed: &'a W, groups: &'a [Group<W>]) -> Live<'a, W> {
        Live { missed, groups }
    }

    /// Inserts a block by its [key](super::layout::live::key) with the words of its event. A block
    /// without a key, or with no room within reach, is counted as missed.
    #[inline]
    pub fn insert(&self, key: Option<u64>, words: &[u64; 7]) {
        if let Some(key) = key {
            let home = self.home(key);
            let group = self.groups.get(home);
            if group.is_some_and(|group| group.put(key, words))
                || self.insert_beyond(home, key, words)
            {
                return;
            }
        }
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    /// Fetches what tells whether a block is there, and, as likely as not, its entry.
    #[inline]
    pub fn prefetch(&self, key: Option<u64>) {
        if let Some(group) = key.and_then(|key| self.groups.get(self.home(key))) {
            prefetch(&group.keys);
            prefetch(&group.entries[0]);
        }
    }

    /// Takes a block out; `None` if it is not there.
    #[inline]
    pub fn remove(&self, key: Option<u64>) -> Option<Removed> {
        let key = key?;
        let home = self.home(key);
        let group = self.groups.get(home)?;
        match group.take(key) {
            None if group.is_passed() => self.remove_beyond(home, key),
            found => found,
        }
    }

    /// Gives each block, by the event that made it. Of blocks that come and go meanwhile it may give some.
    pub fn each(&self, mut see: impl FnMut(&Event)) {
        for group in self.groups {
            for (key, entry) in group.keys.iter().zip(&group.entries) {
                if let Seen::Block(_, words) = look(key, &entry.words) {
                    see(&Event::from_words(words).1);
                }
            }
        }
    }

    /// Takes out all blocks that are wanted, given the events that made them, and says which were taken.
    /// Nobody else removes one of these at the same time. Not for hot paths: it looks at the whole table.
    pub fn remove_where(
        &self,
        mut wanted: impl FnMut(&Event) -> bool,
        mut removed: impl FnMut(&Event),
    ) {
        for (at, group) in self.groups.iter().enumerate() {
            for (key, entry) in group.keys.iter().zip(&group.entries) {
                let Seen::Block(seen, words) = look(key, &entry.words) else {
                    continue;
                };
                let (_, event) = Event::from_words(words);
                // Release as in `take`.
                if wanted(&event) && key.swap_if(seen, FREE, Ordering::Release) {
                    self.unpass(self.home(seen), at);
                    removed(&event);
                }
            }
        }
    }

    #[cold]
    fn insert_beyond(&self, home: usize, key: u64, words: &[u64; 7]) -> bool {
        let mut at = home;
        for _ in 1..TRIES.min(self.groups.len()) {
            if let Some(group) = self.groups.get(at) {
                // Whoever removes the block finds it counted, because that comes after its insertion.
                group.passed.fetch_add(1, Ordering::Relaxed);
            }
            at = self.after(at);
            if self
                .groups
                .get(at)
                .is_some_and(|group| group.put(key, words))
            {
                return true;
            }
        }
        self.unpass(home, at);
        false
    }

    #[cold]
    fn remove_beyond(&self, home: usize, key: u64) -> Option<Removed> {
        let mut at = home;
        for _ in 1..TRIES.min(self.groups.len()) {
            at = self.after(at);
            let group = self.groups.get(at)?;
            if let Some(found) = group.take(key) {
                self.unpass(home, at);
                return Some(found);
            }
            if !group.is_passed() {
                break;
            }
        }
        None
    }

    /// No longer counts a block in the groups from its home to where it was.
    fn unpass(&self, home: usize, to: usize) {
        let mut at = home;
        while at != to {
            if let Some(group) = self.groups.get(at) {
                group.passed.fetch_add(u64::MAX, Ordering::Relaxed);
            }
            at = self.after(at);
        }
    }

    /// Where a block belongs. Multiplied twice by 2^64 over the golden ratio: once would heap up addresses
    /// at some regular distances.
    #[inline]
    fn home(&self, key: u64) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = key.wrapping_mul(GOLDEN);
        let hash = (hash ^ hash >> 29).wrapping_mul(GOLDEN);
        // The upper half of the hash as a fraction of the groups.
        ((hash >> 32).wrapping_mul(self.groups.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        let next = at.wrapping_add(1);
        if next < self.groups.len() { next } else { 0 }
    }
}

impl<W: Word> Group<W> {
    /// The first place that holds this key, or is [`FREE`].
    #[inline]
    fn place(&self, key: u64) -> Option<(&W, &Entry<W>)> {
        let mut places = self.keys.iter().zip(&self.entries);
        places.find(|(place, _)| place.load(Ordering::Relaxed) == key)
    }

    #[inline]
    fn put(&self, key: u64, words: &[u64; 7]) -> bool {
        while let Some((place, entry)) = self.place(FREE) {
            // Acquire: what is written here comes after what was read when the place was given up.
            if place.swap_if(FREE, WRITING, Ordering::Acquire) {
                entry.write(words);
                // Release: whoever sees the key sees its entry.
                place.store(key, Ordering::Release);
                return true;
            }
            // Another thread was faster: the next look sees that.
        }
        false
    }

    #[inline]
    fn take(&self, key: u64) -> Option<Removed> {
        let (place, entry) = self.place(key)?;
        let [_, _, who, _, size, _, _] = &entry.words;
        let removed = Removed {
            size: size.load(Ordering::Relaxed),
            stack: (who.load(Ordering::Relaxed) >> 32) as u32,
        };
        // Release: the place is given up after its entry was read.
        place.store(FREE, Ordering::Release);
        Some(removed)
    }

    #[inline]
    fn is_passed(&self) -> bool {
        self.passed.load(Ordering::Relaxed) != 0
    }
}

impl<W: Word> Entry<W> {
    #[inline]
    fn write(&self, words: &[u64; 7]) {
        for (at, (word, value)) in self.words.iter().zip(words).enumerate() {
            if at == 0 {
                // The ticks tell entries in the same place apart. Release: a reader that sees them sees
                // the place taken.
                word.store(*value, Ordering::Release);
                // A reader that sees any of the words after them also sees the ticks.
                W::fence(Ordering::Release);
            } else {
                word.store(*value, Ordering::Relaxed);
            }
        }
    }
}

/// What is in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// No block.
    Free,
    /// A block whose entry is being written, or changes faster than one can look.
    Writing,
    /// A block: its key and the words of its event.
    Block(u64, [u64; 7]),
}

/// Looks at a place while its writers go on: never at the words of two blocks at once.
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
