//! One block after the other, in an order of their sizes and lifetimes, each into a gap that it fits.

use super::neighbours::Neighbours;
use super::{Block, sections};

/// Not placed.
pub const NOWHERE: u64 = u64::MAX;

/// Which gap a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// The lowest that is large enough.
    Lowest,
    /// The smallest that is large enough.
    Smallest,
}

/// Orders in which large, long-lived and contended blocks come first, in one way or the other.
pub fn orders(blocks: &[Block], sections: usize) -> Vec<Vec<u32>> {
    let live = sections::live(blocks, sections);
    let highest = highest_in(blocks, &live);
    let length = |at: usize| -> u64 {
        let lives = blocks[at].lives();
        lives.map(|life| (life.to - life.from) as u64).sum()
    };
    let bytes = |at: usize| blocks[at].bytes;
    let area = |at: usize| u128::from(bytes(at)) * u128::from(length(at));
    let of = |value: u64| u128::from(value);
    let keys: [&dyn Fn(usize) -> [u128; 3]; 5] = [
        &|at| [of(bytes(at)), of(length(at)), 0],
        &|at| [area(at), 0, 0],
        &|at| [of(length(at)), of(bytes(at)), 0],
        &|at| [of(highest[at]), of(length(at)), area(at)],
        &|at| [of(highest[at]), area(at), 0],
    ];
    keys.into_iter()
        .map(|key| {
            let mut order: Vec<u32> = (0..blocks.len() as u32).collect();
            order.sort_by_cached_key(|at| std::cmp::Reverse(key(*at as usize)));
            order
        })
        .collect()
}

/// The most live bytes during the life of each block.
fn highest_in(blocks: &[Block], live: &[u64]) -> Vec<u64> {
    // Maxima of 1, 2, 4, … sections from each on.
    let mut maxima = vec![live.to_vec()];
    let mut width = 1;
    while 2 * width <= live.len() {
        let last = &maxima[maxima.len() - 1];
        let next = (0..=live.len() - 2 * width).map(|at| last[at].max(last[at + width]));
        let next = next.collect();
        maxima.push(next);
        width *= 2;
    }
    let within = |from: usize, to: usize| {
        let level = (to - from).ilog2() as usize;
        maxima[level][from].max(maxima[level][to - (1 << level)])
    };
    let most = |block: &Block| block.lives().map(|life| within(life.from, life.to)).max();
    blocks
        .iter()
        .map(|block| most(block).unwrap_or(0))
        .collect()
}

/// Places all blocks in an order. Also how many steps that took.
pub fn fit(blocks: &[Block], near: &Neighbours, order: &[u32], fit: Fit) -> (Vec<u64>, u64) {
    let mut offsets = vec![NOWHERE; blocks.len()];
    let mut taken: Vec<(u64, u64)> = Vec::new();
    let mut steps = 0;
    for at in order {
        let at = *at as usize;
        taken.clear();
        near.each(blocks, at, |other| {
            steps += 1;
            if offsets[other] != NOWHERE {
                taken.push((offsets[other], offsets[other] + blocks[other].bytes));
            }
        });
        steps += 2 * taken.len() as u64;
        taken.sort_unstable();
        offsets[at] = gap(&taken, blocks[at].bytes, fit);
    }
    (offsets, steps)
}

/// Where a gap begins between addresses that are taken, or where they end.
fn gap(taken: &[(u64, u64)], bytes: u64, fit: Fit) -> u64 {
    let (mut end, mut best) = (0, None);
    for (from, to) in taken {
        let room = from.saturating_sub(end);
        if room >= bytes {
            if fit == Fit::Lowest {
                return end;
            }
            if best.is_none_or(|(least, _)| room < least) {
                best = Some((room, end));
            }
        }
        end = end.max(*to);
    }
    best.map_or(end, |(_, at)| at)
}

/// The highest end.
pub fn top(blocks: &[Block], offsets: &[u64]) -> u64 {
    let ends = blocks.iter().zip(offsets);
    ends.map(|(block, offset)| offset.saturating_add(block.bytes))
        .max()
        .unwrap_or(0)
}
