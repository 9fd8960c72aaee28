//! The table by itself: against a map, with threads, and a death after every single step.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;
use crate::event::Class;
use crate::kind::Kind;
use crate::layout::live::{KEYS, WRITING, key};

pub struct Memory<W> {
    pub missed: W,
    pub groups: Vec<Group<W>>,
    /// Number of groups for places that belong to numbers.
    pub own: usize,
}

impl<W: Word> Memory<W> {
    pub fn new(groups: usize, word: impl Fn() -> W) -> Memory<W> {
        Memory::with_own(groups, 0, word)
    }

    /// Returns a memory whose last `own` groups have places that belong to numbers.
    pub fn with_own(groups: usize, own: usize, word: impl Fn() -> W) -> Memory<W> {
        let entry = || LiveEntry {
            level: word(),
            words: std::array::from_fn(|_| word()),
        };
        let group = || Group {
            keys: std::array::from_fn(|_| word()),
            passed: word(),
            entries: std::array::from_fn(|_| entry()),
        };
        Memory {
            missed: word(),
            groups: (0..groups + own).map(|_| group()).collect(),
            own,
        }
    }

    pub fn live(&self) -> Live<'_, W> {
        Live::new(&self.missed, &self.groups, self.own)
    }

    /// Returns the content of every place, with its group.
    pub fn places(&self) -> impl Iterator<Item = (usize, Seen)> {
        let all = self.groups.iter().enumerate();
        all.flat_map(|(at, group)| {
            let places = group.keys.iter().zip(&group.entries);
            places.map(move |(key, entry)| (at, look(key, &entry.words)))
        })
    }

    /// Returns the blocks when no thread runs. Checks that:
    ///
    /// - no entry is being written;
    /// - no block is there twice;
    /// - each group counts exactly the blocks that passed it.
    pub fn blocks(&self) -> BTreeMap<u64, [u64; 7]> {
        let mut blocks = BTreeMap::new();
        let mut passed = vec![0; self.groups.len()];
        for (to, seen) in self.places() {
            match seen {
                Seen::Free => {}
                Seen::Writing => panic!("an entry of group {to} is being written"),
                Seen::Block(key, words) => {
                    assert_eq!(blocks.insert(key, words), None, "{key:x} twice");
                    if to >= self.groups.len() - self.own {
                        continue;
                    }
                    let group = &self.groups[to];
                    let places = group.keys.iter().zip(&group.entries);
                    let mut of = places.filter(|(at, _)| at.load(Ordering::Relaxed) == key);
                    let level = of.next().expect("its place").1.level();
                    let mut at = self.live().home(key, level);
                    while at != to {
                        passed[at] += 1;
                        at = (at + 1) % (passed.len() - self.own);
                    }
                }
            }
        }
        let counted: Vec<_> = self
            .groups
            .iter()
            .map(|group| group.passed.load(Ordering::Relaxed))
            .collect();
        assert_eq!(counted, passed);
        blocks
    }
}

fn memory(groups: usize) -> Memory<AtomicU64> {
    Memory::new(groups, || AtomicU64::new(0))
}

/// Returns the key of a block and the words of its event.
pub fn block(address: u64, size: u64) -> (Option<u64>, [u64; 7]) {
    let event = Event {
        address,
        size,
        stack: size as u32,
        device: (address % 4) as u8,
        ..Event::new(Kind::Alloc, Class::Device)
    };
    (key(event.class, address), event.words(size))
}

#[test]
fn keys_tell_layers_apart_and_do_not_collide_with_the_marks() {
    let keys = Class::ALL.map(|class| key(class, 0x7f00_0000_0000).unwrap());
    assert!(keys.is_sorted() && keys.iter().all(|key| *key > WRITING));
    assert!(key(Class::Device, 0).unwrap() > WRITING);
    assert_eq!(key(Class::Device, 1 << 56), None);
    assert_eq!(key(Class::Unknown, 5), None);
}

#[test]
fn what_was_inserted_is_removed_once() {
    let memory = memory(2);
    let live = memory.live();
    let (key, words) = block(512, 77);
    live.insert_key(key, &words);
    assert_eq!(memory.blocks(), BTreeMap::from([(key.unwrap(), words)]));
    let removed = Removed {
        size: 77,
        stack: 77,
    };
    assert_eq!(live.remove_key(key), Some(removed));
    assert_eq!(live.remove_key(key), None);
    assert_eq!(live.remove_key(None), None);
    assert_eq!(memory.blocks(), BTreeMap::new());
    assert_eq!(Word::load(&memory.missed, Ordering::Relaxed), 0);
    live.insert_key(None, &words);
    assert_eq!(Word::load(&memory.missed, Ordering::Relaxed), 1);
}

#[test]
#[cfg_attr(miri, ignore = "one thread, and long")]
fn a_block_that_finds_no_room_within_reach_is_counted_and_leaves_nothing() {
    let memory = memory(TRIES);
    let live = memory.live();
    let at_home = (1..).filter(|address| live.home(key(Class::Device, *address).unwrap(), 0) == 5);
    let addresses: Vec<_> = at_home.take(TRIES * KEYS + 1).collect();
    let (last, fit) = addresses.split_last().unwrap();
    for address in fit {
        let (key, words) = block(*address, 1);
        live.insert_key(key, &words);
    }
    let before = memory.blocks();
    assert_eq!(before.len(), TRIES * KEYS);
    let (lost, words) = block(*last, 1);
    live.insert_key(lost, &words);
    assert_eq!(Word::load(&memory.missed, Ordering::Relaxed), 1);
    assert_eq!(memory.blocks(), before);
    assert_eq!(live.remove_key(lost), None);
    // The last block of its reach is removed, and the search for the others still works.
    assert!(live.remove_key(block(*fit.last().unwrap(), 1).0).is_some());
    assert!(live.remove_key(block(fit[0], 1).0).is_some());
    assert_eq!(memory.blocks().len(), TRIES * KEYS - 2);
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic only, and long")]
fn addresses_at_any_regular_distance_are_spread() {
    for shift in 8..34 {
        for times in [1, 3, 5, 11] {
            let (memory, distance) = (memory(1024), times << shift);
            let live = memory.live();
            let mut homes = vec![0_u64; 1024];
            // Half full.
            for number in 0..512 * KEYS as u64 {
                let address = 0x7f12_3400_0000 + number * distance;
                homes[live.home(key(Class::Device, address).unwrap(), live.all + 1)] += 1;
            }
            let beyond: u64 = homes
                .iter()
                .map(|home| home.saturating_sub(KEYS as u64))
                .sum();
            // Drawn at random, 1.2 % find their home full.
            assert!(beyond * 100 < 512 * KEYS as u64 * 3, "{distance}: {beyond}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "one thread, and long")]
fn blocks_use_the_first_groups_until_they_are_crowded() {
    let memory = memory(FIRST_GROUPS * 20);
    let live = memory.live();
    let insert = |addresses: std::ops::Range<u64>| {
        for address in addresses {
            let (key, words) = block(address << 9, 1);
            live.insert_key(key, &words);
        }
    };
    let last = || {
        let used = memory.places().filter(|(_, seen)| *seen != Seen::Free);
        used.map(|(at, _)| at).max()
    };
    insert(1..50);
    assert!(last() < Some(FIRST_GROUPS + 4), "{:?}", last());
    insert(50..300);
    assert_eq!(live.level.load(Ordering::Relaxed), 1);
    insert(300..10_000);
    assert_eq!(memory.blocks().len(), 9_999);
    assert!(live.level.load(Ordering::Relaxed) >= 2);
    // The oldest and the newest in turn, whatever level they were entered by.
    for address in 1..5_000 {
        for address in [address, 10_000 - address] {
            assert!(
                live.remove_key(block(address << 9, 1).0).is_some(),
                "{address}"
            );
            assert_eq!(live.remove_key(block(address << 9, 1).0), None);
        }
    }
    // 5,000 was entered last; a group that no block passed counts none.
    assert_eq!(memory.blocks().len(), 1);
    assert_eq!(Word::load(&memory.missed, Ordering::Relaxed), 0);
    // Up to its end the table takes as many blocks as it has places, except the last chains.
    let all = (FIRST_GROUPS * 20 * KEYS) as u64;
    insert(10_000..10_000 + all);
    let held = memory.blocks().len() as u64;
    let missed = Word::load(&memory.missed, Ordering::Relaxed);
    assert_eq!(held + missed, all + 1);
    assert!(held > all * 98 / 100, "{held} of {all}");
}

/// Step of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    /// Removes all blocks of a device.
    Drop(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (1..40_u64).prop_map(Step::Insert),
        8 => (1..40_u64).prop_map(Step::Remove),
        1 => (0..4_u8).prop_map(Step::Drop),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 1000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    /// A table that is nearly always full, or too small.
    #[test]
    fn it_is_a_map(
        groups in 1..4_usize,
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 20 } else { 300 }),
    ) {
        let memory = memory(groups);
        let live = memory.live();
        let mut truth = HashMap::new();
        let mut missed = 0;
        for (size, step) in (1..).zip(steps) {
            match step {
                Step::Insert(address) if truth.contains_key(&address) => {}
                Step::Insert(address) => {
                    let (key, words) = block(address, size);
                    live.insert_key(key, &words);
                    if truth.len() < groups * KEYS {
                        truth.insert(address, size);
                    } else {
                        missed += 1;
                    }
                }
                Step::Remove(address) => {
                    let removed = live.remove_key(block(address, 0).0);
                    let known = truth.remove(&address);
                    prop_assert_eq!(removed, known.map(|size| Removed { size, stack: size as u32 }));
                }
                Step::Drop(device) => {
                    let mut dropped = 0;
                    live.remove_where(|event| event.device == device, |_| dropped += 1);
                    let before = truth.len();
                    truth.retain(|address, _| (address % 4) as u8 != device);
                    prop_assert_eq!(dropped, before - truth.len());
                }
            }
            let expected: BTreeMap<_, _> = truth.iter().map(|(address, size)| {
                let (key, words) = block(*address, *size);
                (key.unwrap(), words)
            }).collect();
            prop_assert_eq!(memory.blocks(), expected);
            prop_assert_eq!(Word::load(&memory.missed, Ordering::Relaxed), missed);
        }
    }
}

#[test]
fn threads_that_crowd_each_other_lose_nothing() {
    const THREADS: u64 = 4;
    const STEPS: u64 = if cfg!(miri) { 100 } else { 400_000 };
    // At most 4 times 30 blocks in 140 places: never too full, nearly always full somewhere.
    let memory = memory(20);
    let kept: Vec<BTreeMap<u64, u64>> = std::thread::scope(|scope| {
        let run = |thread: u64| {
            let memory = &memory;
            move || {
                let live = memory.live();
                let (mut mine, mut state) = (BTreeMap::new(), thread + 1);
                for step in 1..=STEPS {
                    // Xorshift (Marsaglia).
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let address = (state % 30) * THREADS + thread;
                    match mine.remove(&address) {
                        Some(size) => {
                            let removed = live.remove_key(block(address, 0).0);
                            let stack = size as u32;
                            assert_eq!(removed, Some(Removed { size, stack }));
                        }
                        None => {
                            // Ticks tell blocks in one place apart: no two threads have the same.
                            let ticks = step * THREADS + thread;
                            let (key, words) = block(address, ticks);
                            live.insert_key(key, &words);
                            mine.insert(address, ticks);
                        }
                    }
                }
                mine
            }
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(run(thread)))
            .collect();
        // And a reader, which sees entries as they were written or not at all.
        for _ in 0..if cfg!(miri) { 3 } else { 2000 } {
            for (_, seen) in memory.places() {
                if let Seen::Block(seen, words) = seen {
                    let (ticks, event) = Event::from_words(words);
                    assert_eq!(
                        block(event.address, ticks),
                        (Some(seen), words),
                        "an entry of two blocks"
                    );
                }
            }
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let expected: BTreeMap<_, _> = kept
        .iter()
        .flatten()
        .map(|(address, size)| {
            let (key, words) = block(*address, *size);
            (key.unwrap(), words)
        })
        .collect();
    assert_eq!(memory.blocks(), expected);
    assert_eq!(Word::load(&memory.missed, Ordering::Relaxed), 0);
}

/// A word of a process that dies after a number of changes: later changes do not happen.
pub struct Mortal {
    pub word: AtomicU64,
    pub life: Rc<Cell<u64>>,
}

impl Mortal {
    fn lives(&self) -> bool {
        let left = self.life.get();
        self.life.set(left.saturating_sub(1));
        left > 0
    }
}

impl Word for Mortal {
    fn load(&self, order: Ordering) -> u64 {
        self.word.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        if self.lives() {
            self.word.store(value, order);
        }
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let seen = self.word.load(order);
        self.store(seen.wrapping_add(value), Ordering::Relaxed);
        seen
    }
    fn swap_if(&self, current: u64, new: u64, _: Ordering) -> bool {
        let same = self.word.load(Ordering::Relaxed) == current;
        if same {
            self.store(new, Ordering::Relaxed);
        }
        // A dead process goes on as if the change had happened, or it would try for ever.
        same
    }
    fn fence(_: Ordering) {}
}

#[test]
fn a_death_after_any_step_costs_at_most_the_block_in_flight() {
    const STEPS: u64 = if cfg!(miri) { 4 } else { 60 };
    let mut lifetimes = 1..;
    loop {
        let life = Rc::new(Cell::new(lifetimes.next().unwrap()));
        let memory = Memory::new(2, || Mortal {
            word: AtomicU64::new(0),
            life: Rc::clone(&life),
        });
        let live = memory.live();
        let (mut truth, mut before, mut died) = (BTreeMap::new(), BTreeMap::new(), false);
        for step in 1..=STEPS {
            before.clone_from(&truth);
            // Twelve blocks in fourteen places: some are always away from home.
            let (key, words) = block(1 + step * 7 % 12, step);
            if truth.remove(&key.unwrap()).is_some() {
                live.remove_key(key);
            } else {
                live.insert_key(key, &words);
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
    assert!(lifetimes.start > 4 * STEPS, "it died at every step");
}
