//! Parts that can be placed each for itself.

use super::Block;

/// Levels of blocks that live as long as everything around them. (A program that nests deeper is placed all the same.)
const DEEPEST: usize = 64;

/// Blocks that are placed together, above what lies below all of them.
#[derive(Debug)]
pub struct Part {
    /// Bytes that lie below.
    pub base: u64,
    /// Which blocks.
    pub blocks: Vec<u32>,
    /// They themselves, in the same order.
    pub lives: Vec<Block>,
}

/// Divides blocks. Those that live as long as everything around them get their offsets at once. Also where these end,
/// in bytes.
///
/// Both steps lose nothing. Such a block shares no address with any other around it, so whatever is below it can stay and whatever
/// is above it move down by its size, and it can lie at the bottom. And parts that never live at the same time need
/// not know of each other.
pub fn of(blocks: &[Block], offsets: &mut [u64]) -> (Vec<Part>, u64) {
    let (mut parts, mut end_of_placed) = (Vec::new(), 0);
    let all: Vec<u32> = (0..blocks.len() as u32).collect();
    let mut open = vec![(all, 0, 0)];
    while let Some((mut list, base, depth)) = open.pop() {
        list.sort_unstable_by_key(|at| (begin(&blocks[*at as usize]), *at));
        let mut first = 0;
        while first < list.len() {
            let (from, mut to) = (begin(&blocks[list[first] as usize]), 0);
            let mut next = first;
            while next < list.len() && (next == first || begin(&blocks[list[next] as usize]) < to) {
                to = to.max(end(&blocks[list[next] as usize]));
                next += 1;
            }
            let (mut rest, mut floor) = (Vec::new(), base);
            for at in &list[first..next] {
                let block = &blocks[*at as usize];
                let lasts = block.lives[0].from <= from && block.lives[0].to >= to;
                if lasts && depth < DEEPEST {
                    offsets[*at as usize] = floor;
                    floor += block.bytes;
                    end_of_placed = end_of_placed.max(floor);
                } else {
                    rest.push(*at);
                }
            }
            if rest.len() < next - first {
                open.push((rest, floor, depth + 1));
            } else {
                let lives = rest.iter().map(|at| blocks[*at as usize]).collect();
                parts.push(Part {
                    base,
                    blocks: rest,
                    lives,
                });
            }
            first = next;
        }
    }
    (parts, end_of_placed)
}

fn begin(block: &Block) -> usize {
    block.lives().map(|life| life.from).min().unwrap_or(0)
}

fn end(block: &Block) -> usize {
    block.lives().map(|life| life.to).max().unwrap_or(0)
}
