//! Adjacent blocks: cut, merged, and iterated in address order.

use super::block::{Block, Id, NIL, Slab};
use crate::handles::Address;

impl Slab {
    /// Cuts a block that is in no list after `bytes` bytes. Returns the other part, which is
    /// otherwise equal. `None` if there is no other part.
    #[inline]
    pub fn cut(&mut self, id: Id, bytes: u64) -> Option<Id> {
        let block = self.at(id);
        if block.size <= bytes {
            return None;
        }
        let mut rest = block.clone();
        rest.address += bytes;
        rest.size -= bytes;
        rest.left = id;
        let right = rest.right;
        let new = self.insert(rest)?;
        self.at_mut(right).left = new;
        let block = self.at_mut(id);
        block.right = new;
        block.size = bytes;
        Some(new)
    }

    /// Makes `right` a part of `left`, the block before it. Returns the former `right`.
    pub fn absorb(&mut self, left: Id, right: Id) -> Block {
        let gone = self.at(right).clone();
        self.remove(right);
        self.at_mut(gone.right).left = left;
        let block = self.at_mut(left);
        block.right = gone.right;
        block.size += gone.size;
        gone
    }

    /// Iterates over a block and the blocks after it.
    pub fn from(&self, first: Id) -> impl Iterator<Item = (Id, &Block)> {
        let mut id = first;
        std::iter::from_fn(move || {
            if id == NIL {
                return None;
            }
            let (this, block) = (id, self.at(id));
            id = block.right;
            Some((this, block))
        })
    }

    /// Returns the block that contains an address. The search begins at the `first` block of its
    /// range.
    pub fn containing(&self, first: Id, address: Address) -> Option<Id> {
        let ends_after = |(_, block): &(Id, &Block)| address < block.end();
        let (id, block) = self.from(first).find(ends_after)?;
        (address >= block.address).then_some(id)
    }
}
