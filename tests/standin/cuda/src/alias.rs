//! Translation of mapped addresses to places: several addresses can reach one piece of physical
//! memory.
//!
//! Physical memory has *places* of its own, above every address and never assigned twice. The place
//! of memory that is not mapped is its address.

use std::collections::BTreeMap;
use std::ops::Range;

/// First place of physical memory, above every address.
pub const PHYSICAL: u64 = 1 << 63;

/// Bytes that work reaches by address, with the shift from there to their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub addresses: Range<u64>,
    /// Difference from an address to its place, modulo 2^64. 0 for memory that is not mapped.
    pub shift: u64,
}

impl Reach {
    /// Returns the places of the bytes.
    pub fn places(&self) -> Range<u64> {
        let place = |address: u64| address.wrapping_add(self.shift);
        place(self.addresses.start)..place(self.addresses.end)
    }
}

impl From<Range<u64>> for Reach {
    fn from(addresses: Range<u64>) -> Reach {
        let shift = 0;
        Reach { addresses, shift }
    }
}

/// Returns the text in findings for places reached by two parties, each by its own shift.
pub fn name(places: &Range<u64>, mine: u64, theirs: u64) -> String {
    let bytes = |shift: u64| {
        let address = |place: u64| place.wrapping_sub(shift);
        format!("{:#x}..{:#x}", address(places.start), address(places.end))
    };
    match mine == theirs {
        true => format!("bytes {}", bytes(mine)),
        false => format!(
            "bytes {}, the same memory as {}",
            bytes(mine),
            bytes(theirs)
        ),
    }
}

#[derive(Debug)]
struct Mapping {
    end: u64,
    shift: u64,
}

/// All mappings, by their first address.
#[derive(Debug, Default)]
pub struct Aliases(BTreeMap<u64, Mapping>);

impl Aliases {
    /// Maps the addresses to the places from `place` on. They must not be mapped yet.
    pub fn map(&mut self, addresses: Range<u64>, place: u64) {
        let (end, shift) = (addresses.end, place.wrapping_sub(addresses.start));
        self.0.insert(addresses.start, Mapping { end, shift });
    }

    /// Removes the mappings that begin within the addresses.
    pub fn unmap(&mut self, addresses: &Range<u64>) {
        while let Some((start, _)) = self.0.range(addresses.clone()).next() {
            let start = *start;
            self.0.remove(&start);
        }
    }

    /// Splits the addresses at every change of the shift to their places.
    pub fn reach(&self, addresses: Range<u64>) -> impl Iterator<Item = Reach> {
        let mut at = addresses.start;
        std::iter::from_fn(move || {
            if at >= addresses.end {
                return None;
            }
            let mapping = self.0.range(..=at).next_back().map(|(_, mapping)| mapping);
            let (end, shift) = match mapping.filter(|mapping| mapping.end > at) {
                Some(mapping) => (mapping.end.min(addresses.end), mapping.shift),
                None => {
                    let next = self.0.range(at..addresses.end).next();
                    (next.map_or(addresses.end, |(start, _)| *start), 0)
                }
            };
            let addresses = std::mem::replace(&mut at, end)..end;
            Some(Reach { addresses, shift })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(aliases: &Aliases, addresses: Range<u64>) -> Vec<(Range<u64>, Range<u64>)> {
        aliases
            .reach(addresses)
            .map(|reach| (reach.addresses.clone(), reach.places()))
            .collect()
    }

    #[test]
    fn an_access_is_cut_at_every_mapping() {
        let mut aliases = Aliases::default();
        assert_eq!(places(&aliases, 0..100), [(0..100, 0..100)]);
        aliases.map(10..20, PHYSICAL + 500);
        aliases.map(20..30, PHYSICAL);
        aliases.map(40..50, PHYSICAL + 500);
        assert_eq!(
            places(&aliases, 5..45),
            [
                (5..10, 5..10),
                (10..20, PHYSICAL + 500..PHYSICAL + 510),
                (20..30, PHYSICAL..PHYSICAL + 10),
                (30..40, 30..40),
                (40..45, PHYSICAL + 500..PHYSICAL + 505),
            ]
        );
        assert_eq!(places(&aliases, 19..19), []);
        aliases.unmap(&(10..20));
        assert_eq!(
            places(&aliases, 12..22),
            [(12..20, 12..20), (20..22, PHYSICAL..PHYSICAL + 2)]
        );
    }

    #[test]
    fn both_addresses_are_named() {
        let mut aliases = Aliases::default();
        aliases.map(0x1000..0x2000, PHYSICAL);
        aliases.map(0x8000..0x9000, PHYSICAL);
        let shift = |at| aliases.reach(at..at + 1).next().unwrap().shift;
        let shared = PHYSICAL + 0x10..PHYSICAL + 0x20;
        assert_eq!(
            name(&shared, shift(0x1000), shift(0x8000)),
            "bytes 0x1010..0x1020, the same memory as 0x8010..0x8020"
        );
        assert_eq!(
            name(&shared, shift(0x8000), shift(0x8000)),
            "bytes 0x8010..0x8020"
        );
    }
}
