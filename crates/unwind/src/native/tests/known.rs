//! Tests of known walks: they have the same frames as walks made anew, with any walks in between.

use std::alloc::{Layout, alloc_zeroed};
use std::hint::black_box;

use proptest::prelude::*;

use super::Library;
use crate::native::known::KnownWalks;
use crate::native::{code_changed, walk, walk_known};
use crate::{Frames, Met};

fn known() -> Box<KnownWalks> {
    // SAFETY: a value of zeros is one, and the layout is the box's.
    unsafe { Box::from_raw(alloc_zeroed(Layout::new::<KnownWalks>()).cast()) }
}

/// Walks in both ways, and compares the frames. Returns the result of the known walk.
#[inline(never)]
fn both(known: &KnownWalks) -> Met {
    let (mut plain, mut found) = (Frames::new(), Frames::new());
    let met = walk_known(&mut found, known);
    walk(&mut plain);
    if let Some((_, false)) = met.walk() {
        assert!(found.as_slice().is_empty());
        known.copy(met, &mut found);
    }
    // The first frame is the place of the call in this function.
    assert_eq!(plain.as_slice()[1..], found.as_slice()[1..]);
    assert_eq!(plain.is_whole(), found.is_whole());
    assert_eq!(plain.is_cut(), found.is_cut());
    met
}

/// True if the walk was found without following it.
fn is_found(met: Met) -> bool {
    matches!(met.walk(), Some((_, false)))
}

/// Makes the calls of a path: each level takes another amount of stack.
#[inline(never)]
fn down(path: &[u8], known: &KnownWalks, met: &mut Vec<Met>) {
    match path {
        [] => met.push(both(known)),
        [0, rest @ ..] => small(rest, known, met),
        [1, rest @ ..] => large(rest, known, met),
        [_, rest @ ..] => down(rest, known, met),
    }
    black_box(());
}

#[inline(never)]
fn small(path: &[u8], known: &KnownWalks, met: &mut Vec<Met>) {
    let mut room = black_box([1_u64; 3]);
    down(path, known, met);
    black_box(&mut room);
}

#[inline(never)]
fn large(path: &[u8], known: &KnownWalks, met: &mut Vec<Met>) {
    let mut room = black_box([1_u64; 40]);
    down(path, known, met);
    black_box(&mut room);
}

#[test]
fn a_loop_is_known_after_its_first_round() {
    let known = known();
    let mut met = Vec::new();
    for _ in 0..5 {
        for path in [&[0, 1][..], &[1, 0], &[1, 1, 1], &[0, 1], &[0, 1], &[2, 2]] {
            down(path, &known, &mut met);
        }
    }
    let first_round = met.iter().take(6).filter(|met| is_found(**met)).count();
    assert_eq!(first_round, 2);
    assert!(met.iter().skip(6).all(|met| is_found(*met)));
    code_changed();
    down(&[0, 1], &known, &mut met);
    assert!(!is_found(met[met.len() - 1]));
}

#[test]
fn a_step_that_repeats_follows_no_frame() {
    let known = known();
    let layers = [&[0, 1][..], &[1, 0], &[0, 1]].repeat(12);
    let step = [
        &layers[..],
        &[&[1, 1]],
        &layers,
        &[&[1, 1, 1], &[2]],
        &layers,
    ]
    .concat();
    for round in 0..4 {
        for path in &step {
            let (expected, mut met) = (known.expected(), Vec::new());
            down(path, &known, &mut met);
            let met = met[0].walk().map(|(number, _)| number);
            assert!(round < 2 || met == Some(expected), "round {round}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_comes_between(
        paths in prop::collection::vec(prop::collection::vec(0_u8..3, 0..12), 1..60),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..200),
    ) {
        let known = known();
        let mut met = Vec::new();
        for at in order {
            let path: &Vec<u8> = at.get(&paths);
            down(path, &known, &mut met);
        }
        // Every walk has a number.
        prop_assert!(met.iter().all(|met| met.walk().is_some()));
    }
}

#[test]
fn more_walks_than_are_known() {
    let known = known();
    let mut met = Vec::new();
    for round in 0..3 {
        for number in 0..3000_u16 {
            let path: Vec<u8> = (0..12).map(|bit| (number >> bit & 1) as u8).collect();
            down(&path, &known, &mut met);
        }
        assert!(met.len() == 3000 * (round + 1));
    }
    // Then there are few walks again.
    for _ in 0..4 {
        down(&[1, 0, 1], &known, &mut met);
    }
    assert!(is_found(met[met.len() - 1]));
}

#[test]
fn deep_stacks_and_functions_with_frame_pointers() {
    let known = known();
    let mut met = Vec::new();
    let deep = [1_u8; 200];
    for _ in 0..3 {
        down(&deep, &known, &mut met);
    }
    assert!(is_found(met[2]));
    // `alloca` of a size that the compiler does not know: the frame is found by the frame pointer.
    let library = Library::new(
        "#include <alloca.h>
         #include <string.h>
         unsigned long call(void (*f)(void *), void *data, unsigned long size) {
             char *room = alloca(size);
             memset(room, 1, size);
             f(data);
             return room[size / 2];
         }",
        &[],
    );
    let sizes = vec![16, 400, 16, 400, 1000, 400, 16];
    for size in black_box(sizes) {
        library.call(c"call", size, || met.push(both(&known)));
    }
    assert!(is_found(met[met.len() - 1]), "{met:?}");
}

#[test]
fn a_thread_ends_with_its_first_function() {
    let is_whole = || {
        let mut frames = Frames::new();
        walk(&mut frames);
        frames.is_whole()
    };
    assert!(std::thread::spawn(is_whole).join().expect("a thread"));
}
