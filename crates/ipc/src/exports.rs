//! Exported blocks, by the number in their tokens.

use std::collections::HashMap;

/// A block of the exporter, told apart from other blocks at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Address of its beginning.
    pub address: u64,
    /// Size in bytes, with what is not part of it in between.
    pub bytes: u64,
    /// Serial number. Other blocks at this address have or had another one.
    pub serial: u64,
}

/// Exported blocks. Freed blocks stay until [`Exports::add`] finds that there are many.
#[derive(Debug, Default)]
pub struct Exports {
    by_number: HashMap<u64, Block>,
    by_block: HashMap<Block, u64>,
    last: u64,
    /// Number of entries at which freed blocks are removed.
    most: usize,
}

/// Smallest number of entries at which freed blocks are removed.
const FEW: usize = 64;

impl Exports {
    /// Returns the number of a block, the same for each export of it. `is_live`: true if a block is
    /// not freed yet.
    pub fn add(&mut self, block: Block, is_live: impl Fn(Block) -> bool) -> u64 {
        if let Some(number) = self.by_block.get(&block) {
            return *number;
        }
        if self.by_number.len() >= self.most.max(FEW) {
            self.by_number.retain(|_, block| is_live(*block));
            self.by_block.retain(|block, _| is_live(*block));
            self.most = 2 * self.by_number.len();
        }
        self.last += 1;
        self.by_number.insert(self.last, block);
        self.by_block.insert(block, self.last);
        self.last
    }

    /// Finds the block of a number. It may have been freed since.
    pub fn find(&self, number: u64) -> Option<Block> {
        self.by_number.get(&number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_keeps_its_number_and_no_other_gets_it() {
        let mut exports = Exports::default();
        let block = |address, serial| Block {
            address,
            bytes: 512,
            serial,
        };
        let first = exports.add(block(512, 1), |_| true);
        assert_eq!(exports.add(block(512, 1), |_| true), first);
        assert_ne!(exports.add(block(512, 2), |_| true), first);
        assert_eq!(exports.find(first), Some(block(512, 1)));
        assert_eq!(exports.find(0), None);
    }

    #[test]
    fn freed_blocks_do_not_pile_up() {
        let mut exports = Exports::default();
        let kept = Block {
            address: 512,
            bytes: 512,
            serial: 0,
        };
        let number = exports.add(kept, |_| true);
        for serial in 1..100_000 {
            let now = Block {
                address: 1024,
                bytes: 512,
                serial,
            };
            exports.add(now, |block| block == kept);
        }
        assert!(exports.by_number.len() <= FEW + 1 && exports.by_block.len() <= FEW + 1);
        assert_eq!(exports.find(number), Some(kept));
    }
}
