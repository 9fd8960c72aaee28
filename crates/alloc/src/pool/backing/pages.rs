//! Memory that is added to the addresses of a pool or removed: mapped pieces, and driver
//! allocations.

use super::space::Piece;
use crate::pool::block::{Block, Id, NIL, SHARED, State as Is};
use crate::pool::state::State;
use crate::rules;
use crate::size_class::PAGE;

impl<E: Copy> State<E> {
    /// Adds addresses without memory. The first eighth is for small requests.
    pub fn reserved(&mut self, base: u64, bytes: u64) {
        self.space.is_reserved = true;
        let small = (bytes / 8).next_multiple_of(self.settings.page.max(PAGE));
        for (address, size, small) in [(base, small, true), (base + small, bytes - small, false)] {
            let mut block = Block::new(address, size, Is::Unmapped);
            block.small = small;
            if let Some(id) = self.add(block) {
                self.space.firsts.insert(address, id);
                self.space.unmapped(small).insert(address);
            }
        }
    }

    /// Takes the range from `start` to `end` out of all indices, as one busy block. The range must
    /// consist of free and unmapped blocks.
    pub fn carve(&mut self, start: u64, end: u64, mut id: Id) -> Option<Id> {
        while id != NIL && self.slab.at(id).end() <= start {
            id = self.slab.at(id).right;
        }
        let mut whole = NIL;
        while id != NIL && self.slab.at(id).address < end {
            self.take_out(id);
            let address = self.slab.at(id).address;
            if address < start {
                self.cut(id, start - address, |_, _| ());
                let rest = self.slab.at(id).right;
                self.put_back(id);
                id = rest;
            }
            let address = self.slab.at(id).address;
            if self.slab.at(id).end() > end {
                self.cut(id, end - address, |state, rest| state.put_back(rest));
            }
            self.slab.at_mut(id).state = Is::Busy;
            let next = self.slab.at(id).right;
            if whole == NIL {
                whole = id;
            } else {
                self.absorb(whole, id);
            }
            id = next;
        }
        (whole != NIL).then_some(whole)
    }

    /// Takes a free or unmapped block out of its index.
    fn take_out(&mut self, id: Id) {
        let block = self.slab.at(id);
        match block.state {
            Is::Free => self.unlist(id),
            Is::Unmapped => {
                let (address, small) = (block.address, block.small);
                self.space.unmapped(small).remove(&address);
            }
            _ => {}
        }
    }

    /// Puts a free or unmapped block into its index, as it is.
    fn put_back(&mut self, id: Id) {
        let block = self.slab.at(id);
        match block.state {
            Is::Free => self.list(id),
            Is::Unmapped => {
                let (address, small) = (block.address, block.small);
                self.space.unmapped(small).insert(address);
            }
            _ => {}
        }
    }

    /// Records that a block in no index has no memory any more.
    pub fn unmapped(&mut self, id: Id) {
        let block = self.slab.at_mut(id);
        block.state = Is::Unmapped;
        // The next user has no earlier work to wait for.
        (block.queue, block.fence, block.tick) = (SHARED, 0, 0);
        let mut id = id;
        let left = self.slab.at(id).left;
        if left != NIL && self.slab.at(left).state == Is::Unmapped {
            self.take_out(left);
            self.absorb(left, id);
            id = left;
        }
        let right = self.slab.at(id).right;
        if right != NIL && self.slab.at(right).state == Is::Unmapped {
            self.take_out(right);
            self.absorb(id, right);
        }
        self.put_back(id);
    }

    /// Takes free pieces, or free driver allocations, to be given back, until their sum reaches
    /// `bytes`; the last may exceed it. Their work is complete, and they were freed at least `age` ticks ago.
    /// Returns each as a busy block with its address and piece.
    pub fn evict(&mut self, bytes: u64, age: u32) -> Vec<(Id, u64, Piece)> {
        let mut free = Vec::new();
        let mut at = 0;
        while let Some(queue) = self.queues.holder(at) {
            at = queue + 1;
            for small in [false, true] {
                free.extend(self.free_of(queue, small, 0));
            }
        }
        if !self.settings.backing.is_pages() {
            // The least recently used is the least likely to be requested next.
            free.sort_by_cached_key(|id| self.last_use(*id));
        }
        let mut found = Vec::new();
        let mut sum = 0;
        for id in free {
            let idle = self.tick.wrapping_sub(self.slab.at(id).tick);
            let is_over = rules::may_evict(self.is_complete(id));
            if sum < bytes && idle >= age && is_over {
                sum += self.evict_from(id, bytes - sum, &mut found);
            }
        }
        found
    }

    fn evict_from(&mut self, id: Id, bytes: u64, found: &mut Vec<(Id, u64, Piece)>) -> u64 {
        let (start, end) = (self.slab.at(id).address, self.slab.at(id).end());
        let within =
            |(address, piece): (&u64, &Piece)| (*address, *piece, address + piece.bytes <= end);
        let pieces: Vec<_> = self.space.pieces.range(start..end).map(within).collect();
        let (mut sum, mut block) = (0, id);
        for (address, piece, fits) in pieces {
            if !fits || sum >= bytes {
                continue;
            }
            while block != NIL && self.slab.at(block).end() <= address {
                block = self.slab.at(block).right;
            }
            if let Some(taken) = self.carve(address, address + piece.bytes, block) {
                block = self.slab.at(taken).right;
                found.push((taken, address, piece));
                sum += piece.bytes;
            }
        }
        sum
    }

    /// Records that a result of [`State::evict`] was given back to the driver. For pieces, the
    /// bytes held were reduced before.
    pub fn evicted(&mut self, id: Id, address: u64, piece: Piece) {
        self.tells = false;
        if self.settings.backing.is_pages() {
            self.space.pieces.remove(&address);
            self.unmapped(id);
            self.stats.released += 1;
        } else {
            self.stats.release(piece.bytes);
            self.deallocated(id);
        }
    }
}
