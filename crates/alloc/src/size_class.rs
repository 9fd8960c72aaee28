//! Size classes: steps of 512 bytes up to 128 KiB, then 128 steps to each doubling.
//!
//! The driver itself rounds requests of up to 1 MiB to multiples of 512 bytes. It grants larger
//! requests in pages of 2 MiB (measured on an H100). A multiple of 2 MiB up to 512 MiB is a class
//! of its own; above that a class is at most 1/128 wide.

/// Smallest block, and the alignment of all blocks, in bytes.
pub(crate) const GRANULE: u64 = 512;

/// Page in which the driver grants larger requests, in bytes.
pub(crate) const PAGE: u64 = 2 << 20;

/// Steps in each doubling, as a power of two.
const STEPS: u32 = 7;

/// Doublings above the linear part: classes reach 8 TiB.
const DOUBLINGS: usize = 28;

/// Total number of size classes.
pub(crate) const CLASSES: usize = (DOUBLINGS + 1) << STEPS;

/// Largest request that is rounded at all, in bytes.
const LARGEST: u64 = 4 << 40;

/// Returns the class of a block of `bytes` bytes: the block is at least as large as its class.
#[inline]
pub(crate) fn floor(bytes: u64) -> usize {
    class(bytes / GRANULE)
}

/// Returns the lowest class whose blocks all hold `bytes` bytes.
#[inline]
pub(crate) fn ceil(bytes: u64) -> usize {
    let units = bytes.div_ceil(GRANULE);
    let width = 1u64 << exponent(units);
    class(units.saturating_add(width - 1))
}

#[inline]
fn exponent(units: u64) -> u32 {
    (units | 1).ilog2().saturating_sub(STEPS)
}

#[inline]
fn class(units: u64) -> usize {
    let exponent = exponent(units);
    let class = ((u64::from(exponent)) << STEPS) + (units >> exponent);
    (class as usize).min(CLASSES - 1)
}

/// Bytes of the smallest block of a class.
pub(crate) fn size(class: usize) -> u64 {
    let exponent = (class >> STEPS).saturating_sub(1);
    ((class - (exponent << STEPS)) as u64) << exponent << 9
}

/// Size in bytes of the block for a request: a class of its own, and whole pages where the driver
/// takes pages.
///
/// A request beyond the memory of any device stays as it is: the driver's own error answers it.
#[inline]
pub(crate) fn block_bytes(bytes: u64) -> u64 {
    if bytes > LARGEST {
        return bytes;
    }
    size(ceil(page_bytes(bytes)))
}

/// Minimum bytes that the driver takes for a request: multiples of 512, and whole pages above half
/// a page.
#[inline]
pub(crate) fn page_bytes(bytes: u64) -> u64 {
    if bytes > LARGEST {
        bytes
    } else if bytes > PAGE / 2 {
        bytes.next_multiple_of(PAGE)
    } else {
        bytes.next_multiple_of(GRANULE)
    }
}

/// A set of size classes, as bits.
pub(crate) struct Set {
    words: [u64; WORDS],
    /// Bits of the words that are not zero.
    filled: u64,
}

const WORDS: usize = CLASSES.div_ceil(64);
const _: () = assert!(WORDS <= 64, "a word's bit must fit into `filled`");

impl Set {
    pub fn new() -> Self {
        Set {
            words: [0; WORDS],
            filled: 0,
        }
    }

    #[inline]
    pub fn insert(&mut self, class: usize) {
        if let Some(word) = self.words.get_mut(class / 64) {
            *word |= 1 << (class % 64);
            self.filled |= 1 << (class / 64);
        }
    }

    #[inline]
    pub fn remove(&mut self, class: usize) {
        if let Some(word) = self.words.get_mut(class / 64) {
            *word &= !(1 << (class % 64));
            if *word == 0 {
                self.filled &= !(1 << (class / 64));
            }
        }
    }

    /// First member from `from` to `to`, both included.
    #[inline]
    pub fn first(&self, from: usize, to: usize) -> Option<usize> {
        let index = from / 64;
        let word = self.words.get(index)? & (!0 << (from % 64));
        let class = if word != 0 {
            index * 64 + word.trailing_zeros() as usize
        } else {
            let later = self.filled & (!1 << index);
            if later == 0 {
                return None;
            }
            let index = later.trailing_zeros() as usize;
            index * 64 + self.words.get(index)?.trailing_zeros() as usize
        };
        (class <= to).then_some(class)
    }

    /// Highest member of the set.
    pub fn last(&self) -> Option<usize> {
        let index = self.filled.checked_ilog2()? as usize;
        let word = self.words.get(index)?.checked_ilog2()? as usize;
        Some(index * 64 + word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_are_ordered_and_their_sizes_are_their_own() {
        for c in 1..CLASSES {
            assert_eq!(floor(size(c)), c);
            assert_eq!(ceil(size(c)), c);
            assert!(size(c) > size(c - 1));
        }
        assert!(size(CLASSES - 1) >= LARGEST);
    }

    #[test]
    fn pages_are_classes() {
        for pages in 1..=256 {
            assert_eq!(block_bytes(pages * PAGE), pages * PAGE);
        }
        assert_eq!(block_bytes(1), 512);
        assert_eq!(block_bytes(PAGE / 2), PAGE / 2);
        assert_eq!(block_bytes(PAGE / 2 + 1), PAGE);
        assert_eq!(block_bytes(PAGE + 1), 2 * PAGE);
        assert_eq!(block_bytes(u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn rounding(bytes in 1..1u64 << 42) {
            let (below, above) = (floor(bytes), ceil(bytes));
            prop_assert!(size(below) <= bytes && size(above) >= bytes);
            prop_assert!(above <= below + 1);
            let block = block_bytes(bytes);
            prop_assert!(block >= page_bytes(bytes) && page_bytes(bytes) >= bytes);
            prop_assert!(block - page_bytes(bytes) <= bytes / 128);
            prop_assert!(block.is_multiple_of(GRANULE) && (block <= PAGE || block.is_multiple_of(PAGE)));
        }

        #[test]
        fn sets(members in prop::collection::btree_set(0..CLASSES, 0..20), from in 0..CLASSES, to in 0..CLASSES) {
            let mut set = Set::new();
            for m in &members { set.insert(*m); }
            let want = if from <= to { members.range(from..=to).next().copied() } else { None };
            prop_assert_eq!(set.first(from, to), want);
            prop_assert_eq!(set.last(), members.last().copied());
            for m in &members { set.remove(*m); }
            prop_assert_eq!(set.first(0, CLASSES - 1), None);
        }
    }
}
