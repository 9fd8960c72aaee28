//! The jit part: names of code that is in no file. Interpreters and compilers at run time write
//! them to a perf map (`/tmp/perf-PID.map`; Linux, tools/perf/Documentation/jit-interface.txt).

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::ring::Word;
use super::space::Room;

/// Layout of the part: records of two words. The words of the first [`FIRST`](layout::FIRST)
/// records have other uses.
pub mod layout {
    /// Word: number of complete records.
    pub const COMMITTED: usize = 0;
    /// Word: number of names that did not fit.
    pub const CUT: usize = 1;
    /// Index of the first record.
    pub const FIRST: usize = 4;
    /// Words of a record in this version: the address of the code, then its bytes and the string id
    /// of its name × 2³².
    pub const WORDS: usize = 2;
    /// Bytes of a record in this version.
    pub const BYTES: usize = 8 * WORDS;
}

/// View of the jit part. One thread at a time adds to it.
#[derive(Debug)]
pub struct Jit<'a, W> {
    words: &'a [W],
    room: Room,
}

impl<'a, W: Word> Jit<'a, W> {
    /// Returns names over the words of the part, which are zero at first.
    pub fn new(words: &'a [W]) -> Jit<'a, W> {
        Jit {
            words,
            room: Room::default(),
        }
    }

    /// Places the names in a file that grows.
    pub fn within(self, room: Room) -> Jit<'a, W> {
        Jit { room, ..self }
    }

    /// Adds the name, by its string id, of the code of `size` bytes at an address. `false` if it
    /// does not fit, which is counted. For one thread at a time.
    pub fn add(&self, begin: u64, size: u32, name: u32) -> bool {
        let added = self.append(begin, size, name).is_some();
        if !added && let Some(cut) = self.words.get(layout::CUT) {
            cut.fetch_add(1, Ordering::Relaxed);
        }
        added
    }

    fn append(&self, begin: u64, size: u32, name: u32) -> Option<()> {
        let committed = self.words.get(layout::COMMITTED)?;
        // Relaxed: it was written by this thread, or by one before it in the caller's order.
        let count = committed.load(Ordering::Relaxed);
        let [first, second] = record(self.words, layout::WORDS, count)?;
        let at = (count as usize + layout::FIRST) * layout::BYTES;
        if !self.room.has(at, layout::BYTES) {
            return None;
        }
        first.store(begin, Ordering::Relaxed);
        second.store(u64::from(size) | u64::from(name) << 32, Ordering::Relaxed);
        // Release: a reader that sees the count sees the record.
        committed.store(count + 1, Ordering::Release);
        Some(())
    }
}

/// Returns the record with a number, from 0, where each record has `each` words.
fn record<W>(words: &[W], each: usize, number: u64) -> Option<&[W; layout::WORDS]> {
    let place = usize::try_from(number).ok()?.checked_add(layout::FIRST)?;
    let at = place.checked_mul(each)?;
    words
        .get(at..at.checked_add(layout::WORDS)?)?
        .try_into()
        .ok()
}

/// Names of code by address; of two that overlap, the later one counts.
#[derive(Debug, Default)]
pub struct JitMap {
    /// By first address: the address after the last, and the string id. They do not overlap.
    ranges: BTreeMap<u64, (u64, u32)>,
}

impl JitMap {
    /// Returns the names in the words of a part with `each` words per record. Never trusts their
    /// content.
    pub fn of<W: Word>(words: &[W], each: usize) -> JitMap {
        let mut map = JitMap::default();
        // Acquire: the first `committed` records are complete.
        let committed = words.first().map_or(0, |word| word.load(Ordering::Acquire));
        for [first, second] in (0..committed).map_while(|number| record(words, each, number)) {
            let (begin, rest) = (
                first.load(Ordering::Relaxed),
                second.load(Ordering::Relaxed),
            );
            let end = begin.saturating_add(rest & u64::from(u32::MAX));
            map.insert(begin, end, (rest >> 32) as u32);
        }
        map
    }

    /// Returns the string id of the name of the code at an address.
    pub fn name(&self, address: u64) -> Option<u32> {
        let (_, (end, name)) = self.ranges.range(..=address).next_back()?;
        (address < *end).then_some(*name)
    }

    fn insert(&mut self, begin: u64, end: u64, name: u32) {
        if begin >= end {
            return;
        }
        // An overlapped range keeps its parts before and after.
        while let Some((old, (old_end, old_name))) = self
            .ranges
            .range(..end)
            .next_back()
            .map(|(old, rest)| (*old, *rest))
            && old_end > begin
        {
            self.ranges.remove(&old);
            if old_end > end {
                self.ranges.insert(end, (old_end, old_name));
            }
            if old < begin {
                self.ranges.insert(old, (begin, old_name));
            }
        }
        self.ranges.insert(begin, (end, name));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;

    fn words(records: usize) -> Vec<AtomicU64> {
        let count = (layout::FIRST + records) * layout::WORDS;
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn what_no_longer_fits_is_counted() {
        let words = words(2);
        let jit = Jit::new(&words);
        let added: Vec<_> = (0..4).map(|n| jit.add(n * 16, 8, n as u32 + 8)).collect();
        assert_eq!(added, [true, true, false, false]);
        assert_eq!(words[layout::CUT].load(Ordering::Relaxed), 2);
        let map = JitMap::of(&words, layout::WORDS);
        let names: Vec<_> = [0, 7, 8, 16, 23, 24, 32].map(|at| map.name(at)).into();
        let (a, b) = (Some(8), Some(9));
        assert_eq!(names, [a, a, None, b, b, None, None]);
    }

    #[test]
    fn a_record_that_was_not_committed_is_not_there() {
        let words = words(2);
        let jit = Jit::new(&words);
        jit.add(16, 8, 9);
        jit.add(32, 8, 10);
        // As a kill before the last store leaves it.
        words[layout::COMMITTED].store(1, Ordering::Relaxed);
        let map = JitMap::of(&words, layout::WORDS);
        assert_eq!([map.name(16), map.name(32)], [Some(9), None]);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// Against a table of single addresses.
        #[test]
        fn the_later_name_holds(added in prop::collection::vec((0_u64..60, 0_u32..20), 0..30)) {
            let words = words(20);
            let jit = Jit::new(&words);
            let mut naive = [None; 80];
            for (name, (begin, size)) in (8..).zip(&added) {
                if jit.add(*begin, *size, name) {
                    naive[*begin as usize..][..*size as usize].fill(Some(name));
                }
            }
            prop_assert_eq!(words[layout::CUT].load(Ordering::Relaxed), added.len().saturating_sub(20) as u64);
            let map = JitMap::of(&words, layout::WORDS);
            for (address, name) in (0..).zip(naive) {
                prop_assert_eq!(map.name(address), name);
            }
        }

        #[test]
        fn any_words_are_survived(
            values in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..100], 0..40),
            each in 2_usize..5,
            address: u64,
        ) {
            let words: Vec<_> = values.into_iter().map(AtomicU64::new).collect();
            let map = JitMap::of(&words, each);
            // Each record adds two ranges at most.
            prop_assert!(map.ranges.len() <= words.len());
            map.name(address);
        }
    }
}
