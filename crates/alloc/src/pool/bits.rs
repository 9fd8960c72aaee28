//! Sets of small numbers, as bits.

/// A set of small numbers, one bit each.
#[derive(Default)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub fn new() -> Self {
        Bits(Vec::new())
    }

    #[inline]
    pub fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word |= 1 << (number % 64);
        }
    }

    pub fn remove(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// True only if the set has no other member than this number. May be false then, too, if this
    /// number or an earlier member exceeds 63.
    #[inline]
    pub fn is_within(&self, number: u32) -> bool {
        match self.0.as_slice() {
            [word] => number < 64 && word & !(1 << number) == 0,
            words => words.is_empty(),
        }
    }

    /// First member from a number on.
    pub fn next(&self, from: u32) -> Option<u32> {
        let index = from as usize / 64;
        let first = self.0.get(index)? & (!0 << (from % 64));
        let later = self.0.iter().enumerate().skip(index + 1);
        let (index, word) = std::iter::once((index, first))
            .chain(later.map(|(index, word)| (index, *word)))
            .find(|(_, word)| *word != 0)?;
        Some(index as u32 * 64 + word.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_in_order() {
        let mut bits = Bits::new();
        let members = [0, 1, 63, 64, 200, 8000];
        members.iter().rev().for_each(|n| bits.insert(*n));
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(n) = bits.next(at) {
            found.push(n);
            at = n + 1;
        }
        assert_eq!(found, members);
        assert!(!bits.is_within(0));
        bits.remove(64);
        bits.remove(100_000);
        assert_eq!(bits.next(64), Some(200));
        assert_eq!(bits.next(8001), None);
        assert_eq!(bits.next(1_000_000), None);
        let mut few = Bits::new();
        assert!(few.is_within(3));
        few.insert(3);
        assert!(few.is_within(3) && !few.is_within(4) && !few.is_within(67));
    }
}
