//! Physical memory that the program made itself (`cuMemCreate`), and its mappings.
//!
//! Only memory that was made for descriptors can be given to other processes, so that memory is made
//! with them also where the program asked for none. The program must not notice: such a handle is
//! *plain*, and has no descriptors in the answers that it gets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{LazyLock, Mutex};

use crate::base::lock::lock;

/// Memory that is mapped at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Bytes, in whole pages of the device.
    pub bytes: u64,
    /// Number of the mapping. Later ones have a higher number.
    pub number: u64,
    /// True if the program asked for memory without descriptors.
    is_plain: bool,
}

/// Handles and mappings of the program.
#[derive(Default)]
struct Memory {
    mapped: BTreeMap<u64, Mapping>,
    /// Number of the last mapping.
    last: u64,
    /// Plain handles, with the number of times that the program has each.
    plain: BTreeMap<u64, u32>,
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(Mutex::default);

/// Notes a handle that the program got for memory that it asked for without descriptors.
pub fn made_plain(handle: u64) {
    lock(&MEMORY).plain.insert(handle, 1);
}

/// Notes that the program got a handle of the memory at an address.
pub fn retained(handle: u64, address: u64) {
    let mut memory = lock(&MEMORY);
    if memory
        .around(address)
        .is_some_and(|(_, mapping)| mapping.is_plain)
    {
        *memory.plain.entry(handle).or_default() += 1;
    }
}

/// Takes a handle from the program before its release: the driver may then use its number again.
/// True if the handle was plain, for [`made_plain_again`].
pub fn released(handle: u64) -> bool {
    let mut memory = lock(&MEMORY);
    let Some(times) = memory.plain.get_mut(&handle) else {
        return false;
    };
    *times -= 1;
    if *times == 0 {
        memory.plain.remove(&handle);
    }
    true
}

/// Returns a handle to the program whose release the driver refused.
pub fn made_plain_again(handle: u64) {
    *lock(&MEMORY).plain.entry(handle).or_default() += 1;
}

/// True if the program asked for the memory of a handle without descriptors.
pub fn is_plain(handle: u64) -> bool {
    lock(&MEMORY).plain.contains_key(&handle)
}

/// True if the program asked for the memory at an address without descriptors.
pub fn is_plain_at(address: u64) -> bool {
    around(address).is_some_and(|(_, mapping)| mapping.is_plain)
}

/// Notes memory of a handle that the program mapped.
pub fn mapped(address: u64, bytes: u64, handle: u64) {
    let mut memory = lock(&MEMORY);
    memory.last += 1;
    let mapping = Mapping {
        bytes,
        number: memory.last,
        is_plain: memory.plain.contains_key(&handle),
    };
    memory.mapped.insert(address, mapping);
}

/// Removes and returns the mappings that begin in a range, before the driver unmaps them: other
/// memory may be mapped there at once.
pub fn take(range: Range<u64>) -> Vec<(u64, Mapping)> {
    let mut memory = lock(&MEMORY);
    let taken = memory.within(range);
    for (at, _) in &taken {
        memory.mapped.remove(at);
    }
    taken
}

/// Adds mappings again that the driver did not unmap.
pub fn restore(mappings: Vec<(u64, Mapping)>) {
    lock(&MEMORY).mapped.extend(mappings);
}

/// Finds the mapping that contains an address, with its first address.
pub fn around(address: u64) -> Option<(u64, Mapping)> {
    lock(&MEMORY).around(address)
}

/// Returns the first address of the next mapping that begins at an address or behind it.
pub fn next(address: u64) -> Option<u64> {
    let memory = lock(&MEMORY);
    memory.mapped.range(address..).next().map(|(at, _)| *at)
}

/// Returns the mappings that begin in a range, in the order of their addresses.
pub fn within(range: Range<u64>) -> Vec<(u64, Mapping)> {
    lock(&MEMORY).within(range)
}

impl Memory {
    fn around(&self, address: u64) -> Option<(u64, Mapping)> {
        let (base, mapping) = self.mapped.range(..=address).next_back()?;
        (address - base < mapping.bytes).then_some((*base, *mapping))
    }

    fn within(&self, range: Range<u64>) -> Vec<(u64, Mapping)> {
        let found = self.mapped.range(range);
        found.map(|(at, mapping)| (*at, *mapping)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 2 << 20;

    #[test]
    fn a_handle_is_plain_as_often_as_the_program_has_it() {
        let (handle, other, at) = (0xa1, 0xa2, 0x10_0000_0000);
        made_plain(handle);
        mapped(at, PAGE, handle);
        mapped(at + PAGE, PAGE, other);
        retained(handle, at + 5);
        retained(other, at + PAGE);
        assert!(is_plain_at(at + PAGE - 1) && !is_plain_at(at + PAGE));
        assert!(released(handle) && is_plain(handle) && !is_plain(other));
        assert!(released(handle) && !is_plain(handle) && !released(handle));
        // The memory is still mapped, and may have another handle now.
        retained(other, at);
        assert!(is_plain(other) && released(other));
        made_plain_again(other);
        assert!(is_plain(other));
    }

    #[test]
    fn a_range_loses_what_begins_in_it_also_behind_a_gap() {
        let base = 0x20_0000_0000;
        for page in [0, 1, 3] {
            mapped(base + page * PAGE, PAGE, 0xb1);
        }
        assert_eq!(next(base + 2 * PAGE), Some(base + 3 * PAGE));
        assert_eq!(around(base + 2 * PAGE), None);
        let taken = take(base + PAGE..base + 4 * PAGE);
        assert_eq!((taken.len(), within(base..base + 4 * PAGE).len()), (2, 1));
        restore(taken);
        let numbers = within(base..base + 4 * PAGE);
        assert!(numbers.is_sorted_by_key(|(_, mapping)| mapping.number));
        assert_eq!(numbers.len(), 3);
    }
}
