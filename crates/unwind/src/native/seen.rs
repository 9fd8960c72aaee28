//! Objects that were seen since code last changed: a lock-free set of addresses.

use std::sync::atomic::{AtomicU64, Ordering};

/// A set of page addresses with `N` places, a power of two.
pub struct Seen<const N: usize> {
    /// Number of the page in the lower bits, and above it the generation that it was seen in.
    places: [AtomicU64; N],
    /// Starts at 1, so that no entry is 0.
    generation: AtomicU64,
}

/// Bits of a page's number: addresses have 47 at most, and a page 12.
const PAGE_BITS: u32 = 35;

/// Number of places that are tried for one address.
const TRIES: usize = 16;

impl<const N: usize> Seen<N> {
    const SHIFT: u32 = {
        assert!(N.is_power_of_two() && N > 1);
        64 - N.trailing_zeros()
    };

    /// Makes a set without any entries.
    pub const fn new() -> Seen<N> {
        Seen {
            places: [const { AtomicU64::new(0) }; N],
            generation: AtomicU64::new(1),
        }
    }

    /// Makes all entries invalid.
    pub fn forget(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Puts an address into the set; false if it was there. Returns true each time if there is no
    /// room.
    pub fn is_new(&self, address: u64) -> bool {
        let page = address >> 12;
        let generation = self.generation.load(Ordering::Acquire) << PAGE_BITS;
        let mine = generation | page;
        let start = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> Self::SHIFT;
        for place in self.places.iter().cycle().skip(start as usize).take(TRIES) {
            let mut there = place.load(Ordering::Relaxed);
            // Entries of older generations may be replaced.
            while there >> PAGE_BITS != generation >> PAGE_BITS {
                match place.compare_exchange(there, mine, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return true,
                    Err(other) => there = other,
                }
            }
            if there == mine {
                return false;
            }
        }
        true
    }
}
