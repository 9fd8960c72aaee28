//! Small blocks apart from the others, where there are too many pairs of blocks that meet.
//!
//! Many blocks of a run are small: they make most of the pairs and next to none of the memory. Apart from them the others can be
//! placed with care, and what the small ones take beyond the least is little, however they lie.

use super::Block;
use super::neighbours;
use super::sections;

/// The small ones take at most this part of the largest live sum, inversely, at their own peak.
const PART: u64 = 2_000;

/// Which blocks are small, if with them there are more than `most` pairs and without them fewer.
pub fn small(blocks: &[Block], most: u64) -> Option<Vec<bool>> {
    let mut within = blocks.to_vec();
    let sections = sections::in_sections(&mut within);
    if neighbours::pairs_of(&within) <= most {
        return None;
    }
    let peak = |blocks: &[Block]| sections::live(blocks, sections).into_iter().max();
    let enough = peak(&within)? / PART;
    let up_to = |bytes: u64| {
        let some = within.iter().filter(|block| block.bytes <= bytes);
        peak(&some.copied().collect::<Vec<_>>()).unwrap_or(0)
    };
    // The largest power of two up to which they come to no more.
    let bits = (0..u64::BITS - 1).take_while(|bits| up_to(1 << bits) <= enough);
    let limit = 1 << bits.last()?;
    let is_small: Vec<bool> = blocks.iter().map(|block| block.bytes <= limit).collect();
    (is_small.contains(&true) && is_small.contains(&false)).then_some(is_small)
}
