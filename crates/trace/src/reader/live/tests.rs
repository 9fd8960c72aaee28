//! Damaged tables, and tables of other versions.

use proptest::prelude::*;

use super::*;
use crate::clock::Pair;
use crate::event::Class;
use crate::kind::Kind;

const CLOCK: Calibration = Calibration {
    start: Pair { ticks: 0, ns: 0 },
    later: Pair {
        ticks: 1000,
        ns: 1000,
    },
};

/// A table of some groups, filled from the front with blocks of the addresses 0, 512, …
fn table(groups: usize, blocks: usize) -> Vec<u64> {
    let mut words = vec![0; (live::HEAD_BYTES + groups * live::GROUP_BYTES) / 8];
    for number in 0..blocks {
        let event = Event {
            address: number as u64 * 512,
            size: 7,
            ..Event::new(Kind::Alloc, Class::Host)
        };
        let group = live::HEAD_BYTES / 8 + number / live::KEYS * WORDS;
        let place = number % live::KEYS;
        words[group + place] = live::key(Class::Host, event.address).unwrap();
        // Later ones are older.
        let entry = event.words(1000 - number as u64);
        words[group + 8 * (1 + place) + 1..][..7].copy_from_slice(&entry);
    }
    words
}

fn parse(words: &[u64], part: Part) -> LiveTable {
    let content: Vec<_> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    read(&Bytes::copy(&content), part, CLOCK)
}

fn whole(words: &[u64]) -> Part {
    Part {
        offset: 0,
        length: words.len() as u64 * 8,
        stride: live::GROUP_BYTES as u64,
    }
}

fn addresses(table: &LiveTable) -> Vec<u64> {
    table
        .blocks
        .iter()
        .map(|block| block.event.address)
        .collect()
}

#[test]
fn blocks_come_back_the_oldest_first() {
    let words = table(3, 10);
    let table = parse(&words, whole(&words));
    assert!(table.is_complete());
    assert_eq!((table.capacity, table.in_flight, table.missed), (21, 0, 0));
    let expected: Vec<_> = (0..10).rev().map(|number| number * 512).collect();
    assert_eq!(addresses(&table), expected);
    assert_eq!((table.blocks[0].ns, table.blocks[9].ns), (991, 1000));
    assert_eq!(table.blocks[0].event.size, 7);
}

#[test]
fn what_is_missing_is_said() {
    let mut words = table(3, 10);
    words[live::MISSED / 8] = 3;
    words[live::HEAD_BYTES / 8 + 2] = live::WRITING;
    let table = parse(&words, whole(&words));
    assert_eq!(
        (table.missed, table.in_flight, table.blocks.len()),
        (3, 1, 9)
    );
    assert!(!table.is_complete());
    assert_eq!(table.problems, [] as [&str; 0]);
}

#[test]
fn entries_that_contradict_their_keys_are_left_out_and_reported() {
    for (index, mask) in [(0, 2), (0, 1 << 63), (1, 4), (8 + 4, 8), (16 + 2, 0x100)] {
        let mut words = table(3, 10);
        words[live::HEAD_BYTES / 8 + index] ^= mask;
        let table = parse(&words, whole(&words));
        assert_eq!(table.blocks.len(), 9, "{index}");
        assert_eq!(
            table.problems,
            [
                "1 entries of the live table do not belong to their keys, the first in the group at byte 512: left out"
            ]
        );
    }
}

#[test]
fn of_a_block_seen_twice_the_newer_is_kept() {
    let mut words = table(3, 10);
    // The block of the first place, in the second group, older.
    let group = live::HEAD_BYTES / 8;
    let entry: [u64; 8] = words[group + 8..][..8].try_into().unwrap();
    words[group + WORDS + 4] = words[group];
    words[group + WORDS + 8 * 5..][..8].copy_from_slice(&entry);
    words[group + WORDS + 8 * 5 + 1] = 5;
    let table = parse(&words, whole(&words));
    assert_eq!(table.blocks.len(), 10);
    assert_eq!(table.blocks[9].ns, 1000);
}

#[test]
fn a_table_that_is_cut_off_gives_the_groups_that_are_there() {
    let words = table(3, 21);
    let part = whole(&words);
    let table = parse(&words[..words.len() - 1], part);
    assert_eq!(table.blocks.len(), 14);
    assert_eq!(
        table.problems,
        ["the live table is cut off: 2 of 3 groups are there"]
    );
    assert_eq!(parse(&[], part).blocks, []);
}

#[test]
fn longer_groups_of_a_later_version_are_read() {
    let mut words = table(3, 10);
    let groups = words.split_off(live::HEAD_BYTES / 8);
    for group in groups.chunks(WORDS) {
        words.extend(group);
        words.extend([u64::MAX; 8]);
    }
    let part = Part {
        stride: live::GROUP_BYTES as u64 + 64,
        ..whole(&words)
    };
    let table = parse(&words, part);
    assert!(table.is_complete());
    assert_eq!(table.blocks.len(), 10);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    #[cfg_attr(miri, ignore = "no unsafe code, and long")]
    fn any_bytes_are_survived(
        words in prop::collection::vec(prop_oneof![any::<u64>(), 0..3_u64], 0..400),
        offset in prop_oneof![0..500_u64, any::<u64>().prop_map(|at| at >> 16)],
        length in prop_oneof![0..4000_u64, any::<u64>().prop_map(|length| length >> 16)],
        stride in prop_oneof![Just(512_u64), 1..2000_u64, any::<u64>().prop_map(|stride| stride | 1)],
    ) {
        // As the header's reader gives it: aligned, below 2^48, no stride of 0.
        let table = parse(&words, Part { offset: offset & !7, length, stride });
        prop_assert!(table.blocks.len() <= words.len());
    }
}
