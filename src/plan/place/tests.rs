use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::ledger::Focus;
use crate::plan::lives::Lives;
use crate::recording;
use crate::requests::Requests;
use gpushim_alloc::plan::{Family, GRANULE};

/// Little effort, and nothing but the best is enough.
const THOROUGH: Effort = Effort {
    steps: 100_000_000,
    unit: 1,
};

fn placed(blocks: &[Block], effort: Effort) -> Placement {
    place(blocks, &mut Budget::new(effort, &mut |_, _| {}))
}

/// What is wrong with a placement.
fn fault(blocks: &[Block], placement: &Placement) -> Option<String> {
    for (at, (block, offset)) in blocks.iter().zip(&placement.offsets).enumerate() {
        if offset % GRANULE != 0 || offset + block.bytes > placement.bytes {
            return Some(format!("block {at} at {offset}: {placement:?}"));
        }
        for (other, to) in blocks.iter().zip(&placement.offsets).take(at) {
            let apart = offset + block.bytes <= *to || to + other.bytes <= *offset;
            if block.meets(other) && !apart {
                return Some(format!("{block:?} at {offset} meets {other:?} at {to}"));
            }
        }
    }
    None
}

/// The largest sum of blocks that live at the same moment.
fn largest_live(blocks: &[Block]) -> u64 {
    let moments = blocks
        .iter()
        .flat_map(|block| block.lives().map(|life| life.from));
    let live = |moment: usize| -> u64 {
        let lives = |block: &&Block| {
            let mut lives = block.lives();
            lives.any(|life| life.from <= moment && moment < life.to)
        };
        blocks.iter().filter(lives).map(|block| block.bytes).sum()
    };
    moments.map(live).max().unwrap_or(0)
}

/// The best there is: each block on top of those before it, in every order.
fn best(blocks: &[Block], done: &mut Vec<(usize, u64)>, top: u64) -> u64 {
    if done.len() == blocks.len() {
        return top;
    }
    let mut least = u64::MAX;
    for (at, block) in blocks.iter().enumerate() {
        if done.iter().any(|(other, _)| *other == at) {
            continue;
        }
        let below = done.iter().filter(|(other, _)| blocks[*other].meets(block));
        let end = below.map(|(_, end)| *end).max().unwrap_or(0) + block.bytes;
        done.push((at, end));
        least = least.min(best(blocks, done, top.max(end)));
        done.pop();
    }
    least
}

/// Blocks of which some live twice.
fn blocks(most: usize) -> impl Strategy<Value = Vec<Block>> {
    let block = (1..12_u64, 0..20_usize, 1..8_usize, 0..6_usize, 0..6_usize);
    let block = block.prop_map(|(size, from, length, pause, again)| {
        let to = from + length;
        let second = Life {
            from: to + pause,
            to: to + pause + again,
        };
        Block {
            bytes: size * GRANULE,
            lives: [Life { from, to }, second],
        }
    });
    proptest::collection::vec(block, 1..most)
}

proptest! {
    #[test]
    fn blocks_that_meet_are_apart(blocks in blocks(60)) {
        let effort = Effort { steps: 3_000_000, unit: 1 };
        let placement = placed(&blocks, effort);
        prop_assert_eq!(fault(&blocks, &placement), None);
        prop_assert!(placement.least >= largest_live(&blocks));
        prop_assert!(placement.bytes >= placement.least);
        prop_assert_eq!(placed(&blocks, effort), placement, "the same again");
    }

    #[test]
    fn a_few_blocks_are_placed_as_well_as_can_be(blocks in blocks(7)) {
        let placement = placed(&blocks, THOROUGH);
        prop_assert_eq!(fault(&blocks, &placement), None);
        let best = best(&blocks, &mut Vec::new(), 0);
        prop_assert_eq!(placement.bytes, best);
        prop_assert!(placement.least <= best, "a bound that is none: {}", placement.least);
    }

    /// The search alone, which is exact, says what fits.
    #[test]
    fn a_search_finds_what_fits_and_nothing_else(mut blocks in blocks(7)) {
        let least = best(&blocks, &mut Vec::new(), 0);
        let sections = sections::in_sections(&mut blocks);
        let near = neighbours::Neighbours::of(&blocks);
        let order: Vec<u32> = (0..blocks.len() as u32).collect();
        let search = |limit| search::Search::new(&blocks, &near, sections, &order, limit).run(u64::MAX).0;
        prop_assert_eq!(search(least - 1), search::Found::Never);
        prop_assert!(matches!(search(least), search::Found::Fit(_)));
    }

    /// Stacking is for what is too large for the others.
    #[test]
    fn stacked_blocks_are_apart(mut blocks in blocks(60)) {
        let sections = sections::in_sections(&mut blocks);
        for order in greedy::orders(&blocks, sections) {
            let offsets = skyline::stack(&blocks, &order, sections);
            let bytes = greedy::top(&blocks, &offsets);
            let placement = Placement { offsets, bytes, least: 0 };
            prop_assert_eq!(fault(&blocks, &placement), None);
        }
    }
}

/// MiniMalloc's challenging problems (Apache-2.0, https://github.com/google/minimalloc): each can be placed in 4 GiB.
#[test]
fn problems_of_the_literature_are_placed_in_what_they_need() {
    const CAPACITY: u64 = 4 << 30;
    // Whatever ends within the capacity is enough.
    let effort = Effort {
        unit: CAPACITY,
        ..Effort::USUAL
    };
    for name in ["A", "B", "C", "D", "E"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let file = folder.join(format!("minimalloc-{name}.csv.gz"));
        let recording = recording::open(&file).expect("a list of requests");
        let focus = Focus::of(&*recording, None);
        let requests = Requests::of(&*recording, focus);
        let requests = requests.into_values().next().expect("a device");
        let lives = Lives::of(&requests, Family::Streams);
        assert!(lives.spans.len() > 100, "{name}");
        let blocks: Vec<Block> = lives.spans.iter().map(|span| Block::one(*span)).collect();
        let placement = placed(&blocks, effort);
        assert_eq!(fault(&blocks, &placement), None, "{name}");
        assert!(placement.bytes <= CAPACITY, "{name}: {}", placement.bytes);
        assert!(placement.least >= largest_live(&blocks), "{name}");
    }
}
