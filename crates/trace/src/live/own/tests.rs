use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::super::tests::{Memory, Mortal, block};
use super::super::{Live, Removed, Seen};
use super::*;

/// Groups for the places of this many ranges.
fn groups(ranges: usize) -> usize {
    ranges * RANGE_GROUPS as usize
}

fn memory(ranges: usize) -> Memory<AtomicU64> {
    Memory::with_own(4, groups(ranges), || AtomicU64::new(0))
}

/// Enters a block as the writer does: in its own place, or else in the table.
fn enter<W: Word>(live: &Live<'_, W>, numbers: &Numbers, number: u32, address: u64, size: u64) {
    let (key, words) = block(address, size);
    let own = live.own_place(numbers, number);
    if !own.is_some_and(|own| own.enter(key.unwrap(), &words)) {
        live.insert(live.spot(key), &words);
    }
}

fn take<W: Word>(live: &Live<'_, W>, numbers: &Numbers, number: u32, address: u64) -> Option<u64> {
    let (key, _) = block(address, 0);
    let own = live.known_place(numbers, number);
    let taken = own.and_then(|own| own.take(key.unwrap()));
    let removed = taken.or_else(|| live.remove(live.spot(key)));
    removed.map(|Removed { size, stack }| {
        assert_eq!(u64::from(stack), size);
        size
    })
}

/// Blocks in groups of numbers, and in others.
fn counts(memory: &Memory<AtomicU64>) -> (usize, usize) {
    let table = memory.groups.len() - memory.own;
    let blocks = memory
        .places()
        .filter(|(_, seen)| matches!(seen, Seen::Block(..)));
    let (own, others): (Vec<_>, Vec<_>) = blocks.partition(|(group, _)| *group >= table);
    (own.len(), others.len())
}

#[test]
fn a_number_keeps_its_place() {
    let (memory, numbers) = (memory(1), Numbers::new());
    let live = memory.live();
    assert!(live.known_place(&numbers, 3).is_none());
    let mut place = None;
    for (size, address) in [(1, 512), (2, 1024), (3, 512)] {
        enter(&live, &numbers, 3, address, size);
        let places = memory.places().enumerate();
        let used = places.filter(|(_, (_, seen))| *seen != Seen::Free);
        let used: Vec<usize> = used.map(|(at, _)| at).collect();
        let [at] = used[..] else {
            panic!("one block in {used:?}");
        };
        assert_eq!(*place.get_or_insert(at), at);
        assert_eq!(counts(&memory), (1, 0));
        assert_eq!(take(&live, &numbers, 3, 4096), None);
        assert_eq!(take(&live, &numbers, 3, address), Some(size));
        assert_eq!(take(&live, &numbers, 3, address), None);
    }
}

#[test]
fn all_numbers_of_a_range_have_different_places() {
    let (memory, numbers) = (memory(2), Numbers::new());
    let live = memory.live();
    for number in 0..2 * RANGE {
        enter(&live, &numbers, number, u64::from(number + 1) << 9, 7);
    }
    assert_eq!(counts(&memory), (2 * RANGE as usize, 0));
    assert_eq!(memory.blocks().len(), 2 * RANGE as usize);
}

#[test]
fn successive_numbers_share_no_line_of_keys() {
    let (memory, numbers) = (memory(2), Numbers::new());
    let live = memory.live();
    live.own_place(&numbers, 0);
    live.own_place(&numbers, RANGE);
    // Blocks of eight threads, of which each has thirty.
    for first in (0..2 * RANGE - 240).step_by(7) {
        let groups = (first..first + 240).map(|number| numbers.place(number).unwrap().0);
        let groups: std::collections::BTreeSet<usize> = groups.collect();
        assert_eq!(groups.len(), 240, "from {first} on");
    }
}

#[test]
fn a_block_whose_place_is_taken_and_one_without_place_are_in_the_table() {
    let (memory, numbers, others) = (memory(1), Numbers::new(), Numbers::new());
    let live = memory.live();
    enter(&live, &numbers, 0, 512, 1);
    // The first one went with its context, and was not taken out yet.
    enter(&live, &numbers, 0, 1024, 2);
    // No places are left for another owner, and none for these numbers at all.
    enter(&live, &others, 0, 1536, 3);
    enter(&live, &numbers, RANGE * RANGES as u32, 2048, 4);
    enter(&live, &numbers, u32::MAX, 2560, 5);
    assert_eq!(counts(&memory), (1, 4));
    assert_eq!(take(&live, &numbers, 0, 1024), Some(2));
    assert_eq!(take(&live, &numbers, 0, 512), Some(1));
    assert_eq!(take(&live, &others, 0, 1536), Some(3));
    assert_eq!(take(&live, &numbers, RANGE * RANGES as u32, 2048), Some(4));
    assert_eq!(take(&live, &numbers, u32::MAX, 2560), Some(5));
    assert_eq!(counts(&memory), (0, 0));
}

#[test]
fn blocks_that_go_with_their_context_give_their_places_up() {
    let (memory, numbers) = (memory(1), Numbers::new());
    let live = memory.live();
    for number in 0..8 {
        enter(&live, &numbers, number, u64::from(number + 1), 9);
    }
    let mut gone = 0;
    let of_device = |event: &crate::Event| event.device == 1;
    live.remove_where(of_device, |_| gone += 1);
    // Devices are the addresses modulo 4.
    assert_eq!((gone, counts(&memory)), (2, (6, 0)));
    enter(&live, &numbers, 0, 77, 1);
    assert_eq!(counts(&memory), (7, 0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 500 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    /// Two owners, whose numbers are more than there are places, and blocks without.
    #[test]
    fn it_is_a_map(steps in prop::collection::vec((0..3_usize, 0..5_u32), 1..if cfg!(miri) { 20 } else { 300 })) {
        let memory = Memory::with_own(20, groups(2), || AtomicU64::new(0));
        let live = memory.live();
        let owners = [Numbers::new(), Numbers::new()];
        let mut truth = BTreeMap::new();
        for (size, (owner, number)) in (1..).zip(steps) {
            let far = number * RANGE / 2;
            let address = (owner as u64 * 100 + u64::from(number) + 1) << 9;
            let (numbers, number) = match owners.get(owner) {
                Some(numbers) => (numbers, far),
                None => (&owners[0], u32::MAX),
            };
            match truth.remove(&address) {
                Some(size) => prop_assert_eq!(take(&live, numbers, number, address), Some(size)),
                None => {
                    enter(&live, numbers, number, address, size);
                    truth.insert(address, size);
                }
            }
            let expected: BTreeMap<_, _> = truth.iter().map(|(address, size)| {
                let (key, words) = block(*address, *size);
                (key.unwrap(), words)
            }).collect();
            prop_assert_eq!(memory.blocks(), expected);
        }
    }
}

#[test]
fn a_death_after_any_step_costs_at_most_the_block_in_flight() {
    let mut lifetimes = 1..;
    loop {
        let life = Rc::new(Cell::new(lifetimes.next().unwrap()));
        let memory = Memory::with_own(1, groups(1), || Mortal {
            word: AtomicU64::new(0),
            life: Rc::clone(&life),
        });
        let (live, numbers) = (memory.live(), Numbers::new());
        let (mut truth, mut before, mut died) = (BTreeMap::new(), BTreeMap::new(), false);
        for step in 1..=if cfg!(miri) { 4 } else { 20_u64 } {
            before.clone_from(&truth);
            let number = step as u32 * 7 % 3;
            let (key, words) = block(512 + u64::from(number), step);
            if truth.remove(&key.unwrap()).is_some() {
                take(&live, &numbers, number, 512 + u64::from(number));
            } else {
                enter(&live, &numbers, number, 512 + u64::from(number), step);
                truth.insert(key.unwrap(), words);
            }
            died = life.get() == 0;
            if died {
                break;
            }
        }
        let mut found = BTreeMap::new();
        let mut writing = 0;
        for (_, seen) in memory.places() {
            match seen {
                Seen::Free => {}
                Seen::Writing => writing += 1,
                Seen::Block(key, words) => assert_eq!(found.insert(key, words), None),
            }
        }
        assert!(found == truth || found == before && died);
        assert!(writing <= u64::from(died && found == before));
        if !died {
            break;
        }
    }
    assert!(lifetimes.start > 20, "it died at every step");
}
