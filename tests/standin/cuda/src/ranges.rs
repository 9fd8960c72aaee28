//! Free ranges of addresses: best fit, joined with adjacent ranges when freed.

use std::collections::{BTreeMap, BTreeSet};

/// A set of disjoint free ranges.
#[derive(Debug, Default)]
pub struct Ranges {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Ranges {
    /// Takes `size` bytes at a multiple of `align`, from the smallest range that has room for them.
    pub fn take(&mut self, size: u64, align: u64) -> Option<u64> {
        let at = self
            .by_size
            .range((size, 0)..)
            .find_map(|(length, start)| {
                let at = start.next_multiple_of(align);
                (at - start + size <= *length).then_some(at)
            })?;
        self.take_at(at, size).then_some(at)
    }

    /// Takes `size` bytes at a multiple of `align` as [`Ranges::take`], within one page of `page`
    /// bytes.
    pub fn take_within(&mut self, size: u64, align: u64, page: u64) -> Option<u64> {
        let at = self.at_least(size).find_map(|(start, length)| {
            let first = start.next_multiple_of(align);
            let at = match first / page == (first + size - 1) / page {
                true => first,
                false => first.next_multiple_of(page),
            };
            (at - start + size <= length).then_some(at)
        })?;
        self.take_at(at, size).then_some(at)
    }

    /// Takes `size` bytes at `at`, if they are free.
    pub fn take_at(&mut self, at: u64, size: u64) -> bool {
        let Some((start, length)) = self.containing(at) else {
            return false;
        };
        if at + size > start + length {
            return false;
        }
        self.remove(start, length);
        self.insert(start, at - start);
        self.insert(at + size, start + length - at - size);
        true
    }

    /// Adds a free range. Returns the joined range that now holds it, as start and size.
    pub fn give(&mut self, start: u64, size: u64) -> (u64, u64) {
        let (mut start, mut size) = (start, size);
        if let Some((before, length)) = self
            .by_start
            .range(..start)
            .next_back()
            .map(|(s, l)| (*s, *l))
            && before + length == start
        {
            self.remove(before, length);
            (start, size) = (before, length + size);
        }
        if let Some(length) = self.by_start.get(&(start + size)).copied() {
            self.remove(start + size, length);
            size += length;
        }
        self.insert(start, size);
        (start, size)
    }

    /// Returns ranges of at least this size, smallest first, as start and size.
    pub fn at_least(&self, size: u64) -> impl Iterator<Item = (u64, u64)> {
        self.by_size
            .range((size, 0)..)
            .map(|(length, start)| (*start, *length))
    }

    /// True if all of these bytes are free.
    pub fn contains(&self, at: u64, size: u64) -> bool {
        self.containing(at)
            .is_some_and(|(start, length)| at + size <= start + length)
    }

    fn containing(&self, at: u64) -> Option<(u64, u64)> {
        let (start, length) = self.by_start.range(..=at).next_back()?;
        (at < start + length).then_some((*start, *length))
    }

    fn insert(&mut self, start: u64, size: u64) {
        if size > 0 {
            self.by_start.insert(start, size);
            self.by_size.insert((size, start));
        }
    }

    fn remove(&mut self, start: u64, size: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_smallest_that_fits_and_joins_what_comes_back() {
        let mut ranges = Ranges::default();
        ranges.give(1, 99);
        ranges.give(200, 10);
        assert_eq!(ranges.take(10, 1), Some(200));
        assert_eq!(ranges.take(10, 64), Some(64));
        assert_eq!(ranges.take(59, 1), Some(1));
        assert!(ranges.take_at(80, 20) && !ranges.take_at(90, 1));
        assert_eq!(ranges.give(64, 10), (60, 20));
        assert_eq!(ranges.give(80, 20), (60, 40));
        assert_eq!(ranges.give(1, 59), (1, 99));
        assert_eq!(ranges.take(100, 1), None);
        assert_eq!(ranges.take_within(20, 1, 32), Some(1));
        assert_eq!(ranges.take_within(20, 1, 32), Some(32));
        assert_eq!(ranges.take_within(30, 1, 32), Some(64));
    }
}
