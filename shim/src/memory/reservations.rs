//! Addresses that this library has reserved for the memory of pools, segments and imports. The
//! program's own calls for mapped memory must not reach them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::base::lock::lock;

/// Bytes of each range, by its first address.
static RANGES: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

/// Adds a range of this many bytes that the driver has reserved.
pub fn add(base: u64, bytes: u64) {
    lock(&RANGES).insert(base, bytes);
}

/// Removes the range that begins at an address, before it is given back to the driver.
pub fn remove(base: u64) {
    lock(&RANGES).remove(&base);
}

/// True if any of `bytes` bytes from an address on are reserved.
pub fn overlap(address: u64, bytes: u64) -> bool {
    let last = address.saturating_add(bytes.saturating_sub(1));
    let ranges = lock(&RANGES);
    let before = ranges.range(..=last).next_back();
    before.is_some_and(|(base, size)| address < base.saturating_add(*size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_overlaps_whatever_touches_it() {
        const BASE: u64 = 0x7_0000_0000;
        add(BASE, 0x1000);
        for (address, bytes, overlaps) in [
            (BASE - 1, 1, false),
            (BASE - 1, 2, true),
            (BASE, 0, true),
            (BASE + 0xfff, 1, true),
            (BASE + 0x1000, 1, false),
            (BASE - 0x1000, 0x4000, true),
            (BASE - 1, u64::MAX, true),
        ] {
            assert_eq!(overlap(address, bytes), overlaps, "{address:#x} {bytes}");
        }
        remove(BASE);
        assert!(!overlap(BASE, 1));
    }
}
