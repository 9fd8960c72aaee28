//! Places of their own: a block that its owner numbers is always entered in the same place of the
//! table. So there is no search, and no other block takes the place. No locked instruction is
//! needed.
//!
//! The owner's numbers come in ranges of [`RANGE`]. A range gets its places when its first block is
//! recorded.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{Group, LiveEntry, Removed};
use crate::layout::live::{FREE, GROUP_BYTES, HEAD_BYTES, KEYS, WRITING};
use crate::ring::{Word, prefetch};
use crate::space::Room;

#[cfg(test)]
mod tests;

/// Number of groups that a range gets: 128 KiB. The default table has ranges for 73 owners, and
/// blocks of later ones are searched.
const RANGE_GROUPS: u32 = 256;
/// Number of blocks that get their places together. A group has every 256th number: threads whose
/// blocks have successive numbers do not share a cache line of keys.
pub const RANGE: u32 = RANGE_GROUPS * KEYS as u32;
/// Number of ranges of one owner. Blocks with higher numbers have no places of their own.
const RANGES: usize = 512;

/// Places of the blocks of one owner, by the owner's numbers. They belong to one table: the first
/// that is asked.
#[derive(Debug)]
pub struct Numbers {
    /// First group of each range, plus one; 0 if the range has none.
    ranges: [AtomicU32; RANGES],
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers::new()
    }
}

impl Numbers {
    /// Returns numbers without places.
    pub const fn new() -> Numbers {
        Numbers {
            ranges: [const { AtomicU32::new(0) }; RANGES],
        }
    }

    /// Returns the group of a number and its place there, if its range has places.
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
    /// Bytes of the part before the first of these groups.
    at: usize,
    /// Number of groups given to ranges, from the first on.
    given: AtomicUsize,
}

impl<'a, W: Word> OwnPlaces<'a, W> {
    /// Returns the places in `groups`; `before` is the number of groups of the table before these.
    pub fn new(groups: &'a [Group<W>], before: usize) -> OwnPlaces<'a, W> {
        OwnPlaces {
            groups,
            at: HEAD_BYTES + before * GROUP_BYTES,
            given: AtomicUsize::new(0),
        }
    }

    pub fn groups(&self) -> &'a [Group<W>] {
        self.groups
    }

    /// Returns the place of a block, if it has one.
    #[inline(always)]
    pub fn get(&self, numbers: &Numbers, number: u32) -> Option<OwnPlace<'a, W>> {
        let (group, place) = numbers.place(number)?;
        let group = self.groups.get(group)?;
        Some(OwnPlace {
            key: group.keys.get(place)?,
            entry: group.entries.get(place)?,
        })
    }

    /// Returns the place of a block. Gives it one if there is room.
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
        // If another thread was faster, the range has that thread's places, and these stay unused.
        let _ = range.compare_exchange(0, first, relaxed, relaxed);
        self.get(numbers, number)
    }
}

/// The place of one block. The caller must ensure that the block's number stands for one block at a
/// time.
#[derive(Debug)]
pub struct OwnPlace<'a, W> {
    key: &'a W,
    entry: &'a LiveEntry<W>,
}

impl<W: Word> OwnPlace<'_, W> {
    /// Prefetches the cache lines that [`OwnPlace::enter`] writes.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(self.key);
        prefetch(self.entry);
    }

    /// Enters a block. `false` if the place still holds a block: one of a destroyed context, not
    /// yet taken out.
    #[inline(always)]
    pub fn enter(&self, key: u64, words: &[u64; 7]) -> bool {
        // Acquire: the writes here come after the reads made before the place was released.
        if self.key.load(Ordering::Acquire) != FREE {
            return false;
        }
        self.key.store(WRITING, Ordering::Relaxed);
        // The ticks are stored with release order: a reader that sees them sees the place taken.
        self.entry.write(words);
        // Release: a thread that sees the key sees its entry.
        self.key.store(key, Ordering::Release);
        true
    }

    /// Takes a block out; `None` if it is not here.
    #[inline(always)]
    pub fn take(&self, key: u64) -> Option<Removed> {
        if self.key.load(Ordering::Relaxed) != key {
            return None;
        }
        let removed = self.entry.removed();
        // Release: the place is released after its entry was read.
        self.key.store(FREE, Ordering::Release);
        Some(removed)
    }
}

#[cfg(test)]
impl<'a, W: Word> OwnPlace<'a, W> {
    pub fn of(group: &'a Group<W>, at: usize) -> OwnPlace<'a, W> {
        OwnPlace {
            key: &group.keys[at],
            entry: &group.entries[at],
        }
    }
}
