//! Each block on top of all that were placed before it and meet it: for any number of pairs.

use super::Block;

/// Heights of sections, of which a range is asked and set at once: a segment tree.
struct Heights {
    /// The highest of each node's sections.
    most: Vec<u64>,
    /// What all sections of a node were set to; `None`: not since something below was.
    set: Vec<Option<u64>>,
    leaves: usize,
}

impl Heights {
    fn new(sections: usize) -> Heights {
        let leaves = sections.next_power_of_two();
        Heights {
            most: vec![0; 2 * leaves],
            set: vec![None; 2 * leaves],
            leaves,
        }
    }

    fn most(&self, node: usize, (low, high): (usize, usize), from: usize, to: usize) -> u64 {
        if to <= low || high <= from {
            return 0;
        }
        if from <= low && high <= to {
            return self.most[node];
        }
        if let Some(height) = self.set[node] {
            return height;
        }
        let middle = low.midpoint(high);
        let left = self.most(2 * node, (low, middle), from, to);
        left.max(self.most(2 * node + 1, (middle, high), from, to))
    }

    fn set(
        &mut self,
        node: usize,
        (low, high): (usize, usize),
        (from, to): (usize, usize),
        height: u64,
    ) {
        if to <= low || high <= from {
            return;
        }
        if from <= low && high <= to {
            self.most[node] = height;
            self.set[node] = Some(height);
            return;
        }
        if let Some(before) = self.set[node].take() {
            for child in [2 * node, 2 * node + 1] {
                self.most[child] = before;
                self.set[child] = Some(before);
            }
        }
        let middle = low.midpoint(high);
        self.set(2 * node, (low, middle), (from, to), height);
        self.set(2 * node + 1, (middle, high), (from, to), height);
        self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]);
    }
}

/// Stacks blocks with lives in sections, in this order.
pub fn stack(blocks: &[Block], order: &[u32], sections: usize) -> Vec<u64> {
    let mut heights = Heights::new(sections);
    let mut offsets = vec![0; blocks.len()];
    let all = (0, heights.leaves);
    for at in order {
        let block = &blocks[*at as usize];
        let below = block
            .lives()
            .map(|life| heights.most(1, all, life.from, life.to))
            .max();
        let offset = below.unwrap_or(0);
        for life in block.lives() {
            heights.set(1, all, (life.from, life.to), offset + block.bytes);
        }
        offsets[*at as usize] = offset;
    }
    offsets
}
