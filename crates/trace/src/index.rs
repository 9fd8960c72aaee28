//! Index of an append-only part of the file: a hash table in private memory, from the hash of an
//! entry to its id. Any number of threads use it, without a lock; entries are never removed.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::Word;

/// Number of places that are checked before an entry counts as absent. In a table at most half
/// full, as all here are, one in 100,000 entries has a run this long.
const PROBES: usize = 64;

/// Hash table of ids. A word of it is 0 while free, then the upper half of the hash and the id.
#[derive(Debug)]
pub struct Index<W> {
    /// Words of the table: a power of two of them, or none.
    table: Box<[W]>,
}

impl Index<AtomicU64> {
    /// Returns a table for this many entries, in memory that becomes present as it is used. `None`
    /// if there is not enough.
    pub fn for_entries(entries: usize) -> Option<Index<AtomicU64>> {
        let words = entries.max(8).saturating_mul(2).next_power_of_two();
        Some(Index {
            table: zeros(words)?,
        })
    }
}

/// Returns words of zero, at least one, in memory that becomes present as it is used. `None` if
/// there is not enough.
pub fn zeros(words: usize) -> Option<Box<[AtomicU64]>> {
    let words = words.max(1);
    let layout = Layout::array::<AtomicU64>(words).ok()?;
    // SAFETY: the layout has a size, as there are words.
    let zeros = unsafe { alloc_zeroed(layout) }.cast::<AtomicU64>();
    if zeros.is_null() {
        return None;
    }
    // SAFETY: `words` words were just allocated with the layout of a boxed slice of them; zeros are
    // valid words.
    Some(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(zeros, words)) })
}

impl<W: Word> Index<W> {
    /// Returns an index over a table of zeros, a power of two of them.
    #[cfg(test)]
    pub fn over(table: Box<[W]>) -> Index<W> {
        assert!(table.len().is_power_of_two());
        Index { table }
    }

    /// Returns the id of the entry with this hash for which `same` is true, else the one made by
    /// `add`.
    ///
    /// `add` is called once at most. The entry that it makes must be complete when it returns. Its
    /// `None` is passed on. Two threads that add the same entry at once both make one. Both get the
    /// id of the first one entered here, and the other entry is never found. If the table is too
    /// full, the result is `None`, or the id of an entry that was made but not entered.
    #[inline]
    pub fn find_or_add(
        &self,
        hash: u64,
        same: impl Fn(u32) -> bool,
        add: impl FnOnce() -> Option<u32>,
    ) -> Option<u32> {
        let mask = self.table.len().checked_sub(1)?;
        let tag = hash & TAG;
        let mut add = Some(add);
        let mut own = None;
        for step in 0..PROBES.min(self.table.len()) {
            let place = self.table.get((hash as usize).wrapping_add(step) & mask)?;
            // Acquire: the entry that an id names is seen complete.
            let mut word = place.load(Ordering::Acquire);
            if word == 0 {
                let id = match add.take() {
                    Some(add) => *own.insert(add()?),
                    None => own?,
                };
                // Release: a thread that finds the id sees its entry.
                if place.swap_if(0, tag | u64::from(id), Ordering::Release) {
                    return own;
                }
                // Another thread was faster, perhaps with the same entry.
                word = place.load(Ordering::Acquire);
            }
            if word & TAG == tag && same(word as u32) {
                return Some(word as u32);
            }
        }
        own
    }
}

/// Part of a hash that a word of the table keeps.
const TAG: u64 = 0xffff_ffff_0000_0000;

/// Mixes two words into one number; all its bits depend on all of theirs.
#[inline]
pub fn mix(first: u64, second: u64) -> u64 {
    // The product of 128 bits is folded. The constants, bits of pi and of the golden ratio, only
    // keep zeros apart.
    let product =
        u128::from(first ^ 0x243f_6a88_85a3_08d3) * u128::from(second ^ 0x9e37_79b9_7f4a_7c15);
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hashes_are_told_apart_and_a_full_table_says_so() {
        let index = Index::over((0..4).map(|_| AtomicU64::new(0)).collect());
        // All collide: the hash is the same, and only `same` distinguishes them.
        for id in 1..=4 {
            assert_eq!(
                index.find_or_add(7, |found| found == id, || Some(id)),
                Some(id)
            );
        }
        for id in 1..=4 {
            let found = index.find_or_add(7, |found| found == id, || unreachable!());
            assert_eq!(found, Some(id));
        }
        assert_eq!(index.find_or_add(7, |_| false, || Some(5)), None);
        assert_eq!(index.find_or_add(7 | 1 << 40, |_| true, || Some(5)), None);
    }

    #[test]
    fn what_cannot_be_added_is_not_entered() {
        let index = Index::for_entries(0).unwrap();
        assert_eq!(index.find_or_add(1, |_| true, || None), None);
        assert_eq!(index.find_or_add(1, |_| true, || Some(9)), Some(9));
    }

    #[test]
    #[cfg_attr(miri, ignore = "arithmetic only, and long")]
    fn hashes_of_adjacent_addresses_spread() {
        // Return addresses and parents that differ in few bits must spread like random ones. Of
        // 4,096 random ones, two share a place among 2^20 in 8 cases.
        let places: std::collections::HashSet<u64> = (0..4096)
            .map(|n| mix(0x7f00_0000_1000 + n % 64 * 16, n / 64 + 4) & ((1 << 20) - 1))
            .collect();
        assert!(places.len() > 4096 - 40, "{}", places.len());
    }
}
