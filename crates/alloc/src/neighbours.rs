//! Blocks next to each other: cut, merged, and walked along in the order of their addresses.

use crate::handles::Address;
use crate::slab::{Id, Linked, NIL, Slab};

/// Where a block is, and between which others.
pub(crate) struct Place<'a> {
    pub address: &'a mut Address,
    pub size: &'a mut u64,
    pub left: &'a mut Id,
    pub right: &'a mut Id,
}

/// A block with neighbours in address order.
pub(crate) trait Adjoining: Linked + Clone {
    /// Its address, size and neighbours.
    fn place(&mut self) -> Place<'_>;

    /// Its address and bytes.
    fn extent(&self) -> (Address, u64);

    /// Its neighbour at higher addresses, or [`NIL`].
    fn right(&self) -> Id;
}

impl<T: Adjoining> Slab<T> {
    /// Cuts a block, which is in no list, after `bytes` bytes. Returns the rest, a block that is like it otherwise; `None`
    /// if there is no rest.
    #[inline]
    pub fn cut(&mut self, id: Id, bytes: u64) -> Option<Id> {
        let block = self.at(id);
        if block.extent().1 <= bytes {
            return None;
        }
        let mut rest = block.clone();
        let place = rest.place();
        *place.address += bytes;
        *place.size -= bytes;
        *place.left = id;
        let right = *place.right;
        let new = self.insert(rest)?;
        *self.at_mut(right).place().left = new;
        let place = self.at_mut(id).place();
        *place.right = new;
        *place.size = bytes;
        Some(new)
    }

    /// Makes `right` a part of its neighbour `left`. Returns what `right` was.
    pub fn absorb(&mut self, left: Id, right: Id) -> T {
        let gone = self.at(right).clone();
        self.remove(right);
        *self.at_mut(gone.right()).place().left = left;
        let place = self.at_mut(left).place();
        *place.right = gone.right();
        *place.size += gone.extent().1;
        gone
    }

    /// A block and those after it.
    pub fn from(&self, first: Id) -> impl Iterator<Item = (Id, &T)> {
        let mut id = first;
        std::iter::from_fn(move || {
            if id == NIL {
                return None;
            }
            let (this, block) = (id, self.at(id));
            id = block.right();
            Some((this, block))
        })
    }

    /// The block that contains an address, from the first one of its neighbours.
    pub fn containing(&self, first: Id, address: Address) -> Option<Id> {
        let ends_after = |(_, block): &(Id, &T)| {
            let (begin, bytes) = block.extent();
            address < begin.saturating_add(bytes)
        };
        let (id, block) = self.from(first).find(ends_after)?;
        (address >= block.extent().0).then_some(id)
    }
}
