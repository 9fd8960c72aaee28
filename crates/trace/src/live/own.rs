//! Places of their own: a block that its owner numbers is always entered in the same place of the table. Nothing is
//! searched then, and no other block wants the place, so that no locked instruction is needed.
//!
//! The owner's numbers come in ranges of [`RANGE`]; a range gets its places when its first block is recorded.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{Group, LiveEntry, Removed};
use crate::layout::live::{FREE, GROUP_BYTES, HEAD_BYTES, KEYS, WRITING};
use crate::ring::{Word, prefetch};
use crate::space::Room;

#[cfg(test)]
mod tests;

/// Groups that a range gets, 32 KiB.
const RANGE_GROUPS: u32 = 64;
/// Numbers that get their places together. Successive numbers are in different groups: blocks of different threads, which
/// often have such numbers, do not share a cache line of keys.
const RANGE: u32 = RANGE_GROUPS * KEYS as u32;
/// Ranges of one owner. Blocks with higher numbers have no places of their own.
const RANGES: usize = 2048;

/// Which places the blocks of one owner have, by the owner's numbers. They are of one table: the first that is asked.
#[derive(Debug)]
pub struct Numbers {
    /// For each range its first group, plus one; 0: it has none.
    ranges: [AtomicU32; RANGES],
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers::new()
    }
}

impl Numbers {
    /// No block has a place yet.
    pub const fn new() -> Numbers {
        Numbers {
            ranges: [const { AtomicU32::new(0) }; RANGES],
        }
    }

    /// The group of a number and its place there, if its range has places.
    #[inline(always)]
    fn place(&self, number: u32) -> Option<(usize, usize)> {
        let range = self.ranges.get((number / RANGE) as usize)?;
        // Relaxed: the places are in the mapping from the start.
        let first = range.load(Ordering::Relaxed).checked_sub(1)?;
        let (group, place) = (number % RANGE_GROUPS, number % RANGE / RANGE_GROUPS);
        Some(((first + group) as usize, place as usize))
    }
}

/// The groups of a table whose places belong to numbers.
#[derive(Debug)]
pub(super) struct OwnPlaces<'a, W> {
    groups: &'a [Group<W>],
    /// Bytes of the part before the first of them.
    at: usize,
    /// Groups that were given to ranges, the first of them.
    given: AtomicUsize,
}

impl<'a, W: Word> OwnPlaces<'a, W> {
    /// `before`: groups of the table before these.
    pub fn new(groups: &'a [Group<W>], before: usize) -> OwnPlaces<'a, W> {
        OwnPlaces {
            groups,
            at: HEAD_BYTES + before * GROUP_BYTES,
            given: AtomicUsize::new(0),
        }
    }

    /// These groups.
    pub fn groups(&self) -> &'a [Group<W>] {
        self.groups
    }

    /// The place of a block, if it has one.
    #[inline(always)]
    pub fn get(&self, numbers: &Numbers, number: u32) -> Option<OwnPlace<'a, W>> {
        let (group, place) = numbers.place(number)?;
        let group = self.groups.get(group)?;
        Some(OwnPlace {
            key: group.keys.get(place)?,
            entry: group.entries.get(place)?,
        })
    }

    /// As [`OwnPlaces::get`], and gives it one if there is room.
    #[inline(always)]
    pub fn get_or_give(
        &self,
        room: &Room,
        numbers: &Numbers,
        number: u32,
    ) -> Option<OwnPlace<'a, W>> {
        match self.get(numbers, number) {
            None => self.give(room, numbers, number),
            own => own,
        }
    }

    #[cold]
    fn give(&self, room: &Room, numbers: &Numbers, number: u32) -> Option<OwnPlace<'a, W>> {
        let range = numbers.ranges.get((number / RANGE) as usize)?;
        let relaxed = Ordering::Relaxed;
        let mut first = self.given.load(relaxed);
        loop {
            let end = first + RANGE_GROUPS as usize;
            let bytes = RANGE_GROUPS as usize * GROUP_BYTES;
            if end > self.groups.len() || !room.has(self.at + first * GROUP_BYTES, bytes) {
                return None;
            }
            match self
                .given
                .compare_exchange_weak(first, end, relaxed, relaxed)
            {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        let first = u32::try_from(first + 1).ok()?;
        // If another thread was faster, its places are the range's, and ours stay unused.
        let _ = range.compare_exchange(0, first, relaxed, relaxed);
        self.get(numbers, number)
    }
}

/// The place of one block. The caller must ensure that the block's number stands for one block at a time.
#[derive(Debug)]
pub struct OwnPlace<'a, W> {
    key: &'a W,
    entry: &'a LiveEntry<W>,
}

impl<W: Word> OwnPlace<'_, W> {
    /// Fetches what [`OwnPlace::enter`] writes.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(self.key);
        prefetch(self.entry);
    }

    /// Enters a block. `false`: the place still has a block that went with its context and was not taken out yet.
    #[inline(always)]
    pub fn enter(&self, key: u64, words: &[u64; 7]) -> bool {
        // Acquire: what is written here comes after what was read when the place was given up.
        if self.key.load(Ordering::Acquire) != FREE {
            return false;
        }
        self.key.store(WRITING, Ordering::Relaxed);
        // Its ticks are stored with release order: a reader that sees them sees the place taken.
        self.entry.write(words);
        // Release: a thread that sees the key sees its entry.
        self.key.store(key, Ordering::Release);
        true
    }

    /// Takes a block out; `None`: it is not here.
    #[inline(always)]
    pub fn take(&self, key: u64) -> Option<Removed> {
        if self.key.load(Ordering::Relaxed) != key {
            return None;
        }
        let removed = self.entry.removed();
        // Release: the place is given up after its entry was read.
        self.key.store(FREE, Ordering::Release);
        Some(removed)
    }
}

#[cfg(test)]
impl<'a, W: Word> OwnPlace<'a, W> {
    /// A place of a group.
    pub fn of(group: &'a Group<W>, at: usize) -> OwnPlace<'a, W> {
        OwnPlace {
            key: &group.keys[at],
            entry: &group.entries[at],
        }
    }
}
