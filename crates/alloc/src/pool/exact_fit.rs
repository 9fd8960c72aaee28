//! Freed blocks that are kept unmerged, by exact size. A request of the same size on the same
//! stream gets one without a merge and a cut. Of the blocks freed on no particular stream the
//! oldest is next, because its work is complete first.

use super::block::{Id, NIL, Slab, State};

/// Number of sizes that are kept; each has a bit in a word.
pub(super) const SLOTS: usize = 64;
/// Maximum number of blocks of one size on an ordered queue.
const DEPTH: u32 = 16;

/// Blocks of one size. Each has the block after it as `bin.older`.
#[derive(Clone, Copy)]
struct Slot {
    size: u64,
    next: Id,
    count: u32,
}

/// Unmerged blocks of one queue in one part of the addresses.
pub(super) struct ExactFit {
    slots: [Slot; SLOTS],
    /// The last block of each slot, where blocks are kept by [`ExactFit::keep_last`].
    last: [Id; SLOTS],
    filled: u64,
}

#[inline]
pub(super) fn slot(size: u64) -> usize {
    // Fibonacci hashing: the upper bits of the product depend on all bits of the size.
    (size.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

impl ExactFit {
    pub fn new() -> Self {
        let empty = Slot {
            size: 0,
            next: NIL,
            count: 0,
        };
        ExactFit {
            slots: [empty; SLOTS],
            last: [NIL; SLOTS],
            filled: 0,
        }
    }

    /// Block of exactly this size that [`ExactFit::take`] takes next.
    #[inline(always)]
    pub fn next(&self, size: u64) -> Option<Id> {
        let slot = self.slots.get(slot(size))?;
        (slot.size == size && slot.count > 0).then_some(slot.next)
    }

    /// Blocks that [`ExactFit::take`] takes next, one for each size.
    pub fn nexts(&self) -> impl Iterator<Item = (u64, Id)> {
        let filled = self.slots.iter().filter(|slot| slot.count > 0);
        filled.map(|slot| (slot.size, slot.next))
    }

    /// Takes a block of exactly this size out, if there is one.
    #[inline(always)]
    pub fn take(&mut self, slab: &mut Slab, size: u64) -> Option<Id> {
        let index = slot(size);
        let slot = self.slots.get_mut(index)?;
        if slot.size != size || slot.count == 0 {
            return None;
        }
        let id = slot.next;
        slot.next = slab.at(id).bin.older;
        slot.count -= 1;
        if slot.count == 0 {
            self.filled &= !(1 << index);
        }
        Some(id)
    }

    /// Keeps a block, which is taken first for its size. Returns false if the slot is full or holds
    /// another size.
    #[inline(always)]
    pub fn keep(&mut self, slab: &mut Slab, id: Id, size: u64) -> bool {
        let index = slot(size);
        let Some(slot) = self.slots.get_mut(index) else {
            return false;
        };
        if slot.count == 0 {
            slot.size = size;
            slot.next = NIL;
        } else if slot.size != size || slot.count >= DEPTH {
            return false;
        }
        let block = slab.at_mut(id);
        block.bin.older = slot.next;
        block.state = State::Unmerged;
        slot.next = id;
        slot.count += 1;
        self.filled |= 1 << index;
        true
    }

    /// Keeps a block, which is taken last for its size. Returns false if the slot is full or holds
    /// another size.
    pub fn keep_last(&mut self, slab: &mut Slab, id: Id, size: u64) -> bool {
        let index = slot(size);
        let (Some(slot), Some(last)) = (self.slots.get_mut(index), self.last.get_mut(index)) else {
            return false;
        };
        if slot.count == 0 {
            (slot.size, slot.next) = (size, id);
        } else if slot.size == size {
            slab.at_mut(*last).bin.older = id;
        } else {
            return false;
        }
        slab.at_mut(id).state = State::Unmerged;
        *last = id;
        slot.count += 1;
        self.filled |= 1 << index;
        true
    }

    /// True if no blocks are kept.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Bytes of the largest block; 0 if there is none.
    pub fn largest(&self) -> u64 {
        self.nexts().map(|(size, _)| size).max().unwrap_or(0)
    }

    /// Takes any block out, if there is one.
    pub fn pop(&mut self, slab: &mut Slab) -> Option<Id> {
        if self.filled == 0 {
            return None;
        }
        let size = self.slots.get(self.filled.trailing_zeros() as usize)?.size;
        self.take(slab, size)
    }
}
