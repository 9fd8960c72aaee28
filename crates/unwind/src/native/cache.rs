//! The rules known so far: a direct-mapped table that all threads read and write without a lock.
//!
//! An entry is a rule and a key, two words that are not written together. The key is the address
//! mixed with the rule and with the generation of the code. So two kinds of entries match no
//! address: one that has a word from each of two writers, and one from an older generation.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::rule::Rule;

/// Odd numbers without a pattern: the fractional bits of the golden ratio, and of the square roots
/// of 2 and of 3.
const SPREAD_ADDRESS: u64 = 0x9e37_79b9_7f4a_7c15;
const SPREAD_RULE: u64 = 0x6a09_e667_f3bc_c909;
const SPREAD_GENERATION: u64 = 0xbb67_ae85_84ca_a73b;

#[repr(align(16))]
struct CachedRule {
    rule: AtomicU64,
    key: AtomicU64,
}

/// A table of `N` rules, a power of two.
pub struct Cache<const N: usize> {
    entries: [CachedRule; N],
    generation: AtomicU64,
}

/// Generation of the code at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation(u64);

impl<const N: usize> Cache<N> {
    const BITS: u32 = {
        assert!(N.is_power_of_two());
        N.trailing_zeros()
    };

    /// Makes a table without any rules.
    pub const fn new() -> Cache<N> {
        Cache {
            entries: [const {
                CachedRule {
                    rule: AtomicU64::new(0),
                    key: AtomicU64::new(0),
                }
            }; N],
            generation: AtomicU64::new(1),
        }
    }

    /// Returns the generation for look-ups and additions. Rules must be compiled after this.
    #[inline]
    pub fn generation(&self) -> Generation {
        let generation = self.generation.load(std::sync::atomic::Ordering::Acquire);
        Generation(generation.wrapping_mul(SPREAD_GENERATION))
    }

    /// Makes all entries invalid.
    pub fn invalidate(&self) {
        self.generation
            .fetch_add(1, std::sync::atomic::Ordering::AcqRel);
    }

    #[inline]
    fn entry(&self, address: u64) -> Option<&CachedRule> {
        let hash = address.wrapping_mul(SPREAD_ADDRESS);
        // By two shifts, since a shift by 64 is not allowed.
        let index = (hash >> 1 >> (63 - Self::BITS)) as usize;
        self.entries.get(index)
    }

    /// Returns the rule for an address, if it is known.
    #[inline]
    pub fn get(&self, address: u64, generation: Generation) -> Option<Rule> {
        let entry = self.entry(address)?;
        let rule = entry.rule.load(Relaxed);
        (entry.key.load(Relaxed) == key(address, rule, generation)).then_some(Rule(rule))
    }

    /// Stores the rule for an address in place of another.
    pub fn put(&self, address: u64, generation: Generation, rule: Rule) {
        if let Some(entry) = self.entry(address) {
            entry.rule.store(rule.0, Relaxed);
            entry.key.store(key(address, rule.0, generation), Relaxed);
        }
    }

    /// Replaces the rule of the first entry, as half a `put` does.
    #[cfg(test)]
    pub fn tear(&self, rule: Rule) {
        self.entries[0].rule.store(rule.0, Relaxed);
    }
}

#[inline]
fn key(address: u64, rule: u64, generation: Generation) -> u64 {
    address ^ rule.wrapping_mul(SPREAD_RULE) ^ generation.0
}
