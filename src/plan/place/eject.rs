//! Placing blocks below a limit by moving a few at a time: a block that is out goes where the least has to go out
//! for it.
//!
//! What goes out often becomes dear, so that no two blocks push each other out for ever (guided ejection search:
//! Nagata and Bräysy, A powerful route minimization heuristic, 2009).

use super::Block;
use super::chance::Chance;
use super::greedy::NOWHERE;
use super::neighbours::Neighbours;

/// Begins with these offsets and puts all blocks below `limit`, in at most `most` steps. Also how many were taken.
pub fn eject(
    blocks: &[Block],
    near: &Neighbours,
    begin: &[u64],
    limit: u64,
    most: u64,
    mut chance: Chance,
) -> (Option<Vec<u64>>, u64) {
    let mut offsets = begin.to_vec();
    let mut price = vec![1_u64; blocks.len()];
    let mut out: Vec<usize> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        if block.bytes > limit {
            return (None, 0);
        }
        if offsets[at].saturating_add(block.bytes) > limit {
            offsets[at] = NOWHERE;
            out.push(at);
        }
    }
    let (mut seen, mut round) = (vec![0_u32; blocks.len()], 0);
    let mut taken: Vec<(u64, u64, u64)> = Vec::new();
    let mut goes: Vec<usize> = Vec::new();
    let mut steps = 0;
    while steps < most {
        let Some(at) = next(blocks, &mut out, &mut chance) else {
            return (Some(offsets), steps);
        };
        let bytes = blocks[at].bytes;
        round += 1;
        taken.clear();
        near.each(blocks, at, |other| {
            steps += 1;
            if offsets[other] != NOWHERE && std::mem::replace(&mut seen[other], round) != round {
                let from = offsets[other];
                taken.push((from, from + blocks[other].bytes, price[other]));
            }
        });
        steps += 4 * taken.len() as u64 + out.len() as u64;
        let offset = cheapest(&taken, bytes, limit - bytes, &mut chance);
        goes.clear();
        near.each(blocks, at, |other| {
            let from = offsets[other];
            if from != NOWHERE && from < offset + bytes && from + blocks[other].bytes > offset {
                offsets[other] = NOWHERE;
                goes.push(other);
            }
        });
        for other in &goes {
            price[*other] += 1;
            out.push(*other);
        }
        offsets[at] = offset;
    }
    (out.is_empty().then_some(offsets), steps)
}

/// The block that is placed next: mostly the largest.
fn next(blocks: &[Block], out: &mut Vec<usize>, chance: &mut Chance) -> Option<usize> {
    let largest = (0..out.len()).max_by_key(|at| blocks[out[*at]].bytes)?;
    let chosen = match chance.below(4) {
        0 => chance.below(out.len() as u64) as usize,
        _ => largest,
    };
    Some(out.swap_remove(chosen))
}

/// The offset up to `last` at which what is in the way costs least; one of them by chance.
fn cheapest(taken: &[(u64, u64, u64)], bytes: u64, last: u64, chance: &mut Chance) -> u64 {
    // A block from..to is in the way of offsets above from - bytes and below to.
    let mut changes: Vec<(u64, bool, u64)> = Vec::with_capacity(2 * taken.len());
    let (mut cost, mut at_last) = (0, 0);
    for (from, to, price) in taken {
        match from.checked_sub(bytes) {
            Some(from) => changes.push((from, true, *price)),
            None => cost += price,
        }
        changes.push((*to, false, *price));
        if *from < last + bytes && *to > last {
            at_last += price;
        }
    }
    changes.sort_unstable();
    let (mut best, mut ties) = ((cost, 0), 1);
    let mut consider = |cost: u64, offset: u64, chance: &mut Chance| {
        if cost > best.0 || (cost, offset) == best {
            return;
        }
        ties = if cost < best.0 { 1 } else { ties + 1 };
        if chance.below(ties) == 0 {
            best = (cost, offset);
        }
    };
    let mut changes = changes.into_iter().peekable();
    while let Some((offset, ..)) = changes.peek().copied().filter(|(at, ..)| *at <= last) {
        let mut comes = 0;
        while let Some((_, is_new, price)) = changes.next_if(|(at, ..)| *at == offset) {
            if is_new {
                comes += price;
            } else {
                cost -= price;
            }
        }
        consider(cost, offset, chance);
        cost += comes;
    }
    consider(at_last, last, chance);
    best.1
}
