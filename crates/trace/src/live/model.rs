//! Every interleaving and every order in which memory may become visible, for a table of two
//! groups.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as Modelled;
use loom::thread;

use super::tests::Memory;
use super::*;
use crate::explore::{crowd, explore};
use crate::layout::live::KEYS;

/// A table with `blocks` blocks with names from 100 on, all of which belong in its first group.
fn memory<W: Word>(word: impl Fn() -> W, groups: usize, blocks: usize) -> Arc<Memory<W>> {
    let memory = Memory::new(groups, word);
    for name in names(&memory, 100).take(blocks) {
        memory.live().insert_key(Some(name), &[name; 7]);
    }
    Arc::new(memory)
}

/// Keys from a number on that belong into the first group.
fn names<W: Word>(memory: &Memory<W>, from: u64) -> impl Iterator<Item = u64> {
    (from..).filter(|name| memory.live().home(*name, 0) == 0)
}

fn name<W: Word>(memory: &Memory<W>, from: u64) -> u64 {
    names(memory, from).next().unwrap()
}

#[test]
fn two_blocks_want_the_last_place_of_their_group() {
    explore(2, || {
        let memory = memory(crowd(), 2, KEYS - 1);
        let insert = |from: u64| {
            let memory = Arc::clone(&memory);
            move || {
                let name = name(&memory, from);
                memory.live().insert_key(Some(name), &[name; 7]);
                name
            }
        };
        let other = thread::spawn(insert(2000));
        let mine = insert(1000)();
        let other = other.join().unwrap();
        // Also checks that the first group counts the one that had to go on.
        let blocks = memory.blocks();
        assert_eq!(blocks.len(), KEYS + 1);
        assert_eq!((blocks[&mine], blocks[&other]), ([mine; 7], [other; 7]));
        let removed = memory.live().remove_key(Some(other));
        assert_eq!(removed.map(|block| block.size), Some(other));
    });
}

#[test]
fn a_block_comes_and_goes_beyond_its_group_while_room_is_made_there() {
    explore(2, || {
        let memory = memory(crowd(), 2, KEYS);
        let first = name(&memory, 100);
        let there = Arc::clone(&memory);
        let other = thread::spawn(move || there.live().remove_key(Some(first)));
        let mine = name(&memory, 1000);
        memory.live().insert_key(Some(mine), &[mine; 7]);
        let removed = memory.live().remove_key(Some(mine));
        assert_eq!(removed.map(|block| block.size), Some(mine));
        assert!(other.join().unwrap().is_some());
        assert_eq!(memory.blocks().len(), KEYS - 1);
    });
}

#[test]
fn a_block_goes_from_thread_to_thread() {
    explore(2, || {
        let memory = memory(crowd(), 2, KEYS);
        let mine = name(&memory, 1000);
        let handed = Arc::new(Modelled::new(0));
        let (there, taken) = (Arc::clone(&memory), Arc::clone(&handed));
        let other = thread::spawn(move || {
            // Handed over by whatever the program does; then it must be found.
            (taken.load(Ordering::Acquire) == 1).then(|| {
                there
                    .live()
                    .remove_key(Some(mine))
                    .expect("it was inserted")
            })
        });
        memory.live().insert_key(Some(mine), &[mine; 7]);
        handed.store(1, Ordering::Release);
        let removed = other.join().unwrap();
        assert_eq!(memory.blocks().len(), KEYS + usize::from(removed.is_none()));
    });
}

#[test]
fn a_reader_never_sees_the_words_of_two_blocks() {
    explore(3, || {
        let memory = memory(|| Modelled::new(0), 1, 1);
        let key = name(&memory, 100);
        let there = Arc::clone(&memory);
        // The same block, again in the same place.
        let writer = thread::spawn(move || {
            there.live().remove_key(Some(key)).expect("it is there");
            there.live().insert_key(Some(key), &[1; 7]);
        });
        let group = &memory.groups[0];
        // The ticks and two of the words after them stand for all.
        match look(&group.keys[0], &group.entries[0].words[..3]) {
            Seen::Free | Seen::Writing => {}
            Seen::Block(seen, words) => {
                assert_eq!(seen, key);
                assert!([key, 1].contains(&words[0]));
                assert_eq!(words[..3], [words[0]; 3], "words of two blocks");
            }
        }
        writer.join().unwrap();
        assert_eq!(memory.blocks()[&key], [1; 7]);
    });
}

#[test]
fn blocks_come_and_go_while_those_of_a_context_are_taken_out() {
    explore(2, || {
        let memory = memory(|| Modelled::new(0), 1, 3);
        let [gone, stays, new] = [0, 1, 3].map(|index| names(&memory, 100).nth(index).unwrap());
        let there = Arc::clone(&memory);
        let other = thread::spawn(move || {
            let removed = there.live().remove_key(Some(stays));
            assert_eq!(removed.map(|block| block.size), Some(stays));
            there.live().insert_key(Some(new), &[new; 7]);
        });
        let mut taken = Vec::new();
        memory.live().remove_where(
            |event| event.address == gone,
            |event| taken.push(event.address),
        );
        other.join().unwrap();
        assert_eq!(taken, [gone]);
        let blocks = memory.blocks();
        assert_eq!((blocks.len(), blocks[&new]), (2, [new; 7]));
    });
}

#[test]
fn a_reader_never_sees_the_words_of_two_blocks_of_a_number() {
    explore(3, || {
        let memory = Arc::new(Memory::new(1, || Modelled::new(0)));
        let first = OwnPlace::of(&memory.groups[0], 0);
        assert!(first.enter(100, &[100; 7]));
        let there = Arc::clone(&memory);
        let writer = thread::spawn(move || {
            let own = OwnPlace::of(&there.groups[0], 0);
            own.take(100).expect("it is there");
            assert!(own.enter(200, &[200; 7]));
        });
        let group = &memory.groups[0];
        match look(&group.keys[0], &group.entries[0].words[..3]) {
            Seen::Free | Seen::Writing => {}
            Seen::Block(seen, words) => {
                assert!([100, 200].contains(&seen));
                assert_eq!(words[..3], [seen; 3], "words of two blocks");
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_number_is_used_again_while_its_last_block_goes_with_its_context() {
    explore(3, || {
        let memory = Arc::new(Memory::new(1, || Modelled::new(0)));
        let there = Arc::clone(&memory);
        assert!(OwnPlace::of(&memory.groups[0], 0).enter(100, &[100; 7]));
        let other = thread::spawn(move || OwnPlace::of(&there.groups[0], 0).enter(200, &[200; 7]));
        let group = &memory.groups[0];
        let gone = group.keys[0].swap_if(100, FREE, Ordering::Release);
        assert!(gone, "nothing else takes it out");
        let entered = other.join().unwrap();
        let found = look(&group.keys[0], &group.entries[0].words[..3]);
        let expected = if entered { 200 } else { FREE };
        match found {
            Seen::Free => assert_eq!(expected, FREE),
            Seen::Block(key, words) => assert_eq!((key, words[0]), (expected, expected)),
            Seen::Writing => panic!("an entry is being written"),
        }
    });
}
