//! Free blocks, in the bins of their queues and merged with adjacent blocks.

use super::block::SHARED;
use super::block::{Id, NIL, State as Is};
use super::state::State;
use crate::fences;
use crate::rules;

impl<E: Copy> State<E> {
    /// Merges the unmerged blocks of all queues.
    pub fn merge_all(&mut self) {
        self.merge(true, u32::MAX, true);
        self.merge(false, u32::MAX, true);
    }

    /// Merges the unmerged blocks of at most `most` queues; `all` as in [`State::merge_of`].
    pub fn merge(&mut self, small: bool, most: u32, all: bool) {
        let mut at = 0;
        for _ in 0..most {
            let Some(number) = self.queues.holder(at) else {
                break;
            };
            at = number + 1;
            self.merge_of(number, small, all);
        }
    }

    /// Merges the unmerged blocks of a queue. Without `all`, an unordered queue keeps unmerged the
    /// blocks that its later work may not use yet: a free block merged with one of them would wait
    /// for the same work.
    pub fn merge_of(&mut self, queue: u32, small: bool, all: bool) {
        while let Some(at) = self.queues.at(queue)
            && let Some(id) = match at.ordered || all {
                true => at.pop(&mut self.slab, small),
                false => at.pop_usable(&mut self.slab, queue, small),
            }
        {
            self.insert(id);
        }
    }

    /// Merges all unmerged blocks. Then merges adjacent free blocks whose work is complete, even if
    /// they were freed on different streams.
    pub fn consolidate(&mut self) {
        self.merge_all();
        let mut at = 0;
        while let Some(queue) = self.queues.holder(at) {
            at = queue + 1;
            for small in [false, true] {
                for id in self.free_of(queue, small, 0) {
                    // A block that was merged into another since is not free any more.
                    if self.slab.at(id).state == Is::Free
                        && rules::may_consolidate(self.is_complete(id))
                    {
                        self.unlist(id);
                        self.insert(id);
                    }
                }
            }
        }
    }

    /// Makes a block free. Merges it with adjacent free blocks if no later request has to wait
    /// longer for that.
    pub fn insert(&mut self, id: Id) {
        let mut id = id;
        self.slab.at_mut(id).state = Is::Free;
        let mut left = self.slab.at(id).left;
        while rules::may_merge(self.is_joinable(left, id)) {
            self.unlist(left);
            self.absorb(left, id);
            id = left;
            left = self.slab.at(id).left;
        }
        let mut right = self.slab.at(id).right;
        while rules::may_merge(self.is_joinable(right, id)) {
            self.unlist(right);
            self.absorb(id, right);
            right = self.slab.at(id).right;
        }
        self.list(id);
    }

    pub fn is_joinable(&self, neighbour: Id, id: Id) -> bool {
        let (a, b) = (self.slab.at(neighbour), self.slab.at(id));
        neighbour != NIL
            && a.state == Is::Free
            && (a.queue == b.queue || self.is_complete(neighbour) || self.is_complete(id))
    }

    /// Makes `right` a part of the adjacent block `left`.
    pub fn absorb(&mut self, left: Id, right: Id) {
        let is_over = self.is_complete(left);
        self.slab.at_mut(right).state = Is::Busy;
        let gone = self.slab.absorb(left, right);
        self.gone(gone.address);
        let block = self.slab.at_mut(left);
        block.tick = block.tick.max(gone.tick);
        if block.queue == gone.queue {
            block.fence = fences::later(block.fence, gone.fence);
        } else if rules::gives_way(is_over) {
            (block.queue, block.fence) = (gone.queue, gone.fence);
        }
    }

    /// Puts a free block into the bin of its queue.
    pub fn list(&mut self, id: Id) {
        let block = self.slab.at_mut(id);
        block.state = Is::Free;
        let (queue, small) = (block.queue, block.small);
        if let Some(bins) = self.queues.bins_mut(queue, small) {
            bins.insert(&mut self.slab, id);
            return;
        }
        // Its queue has ended since: the block is free for all streams.
        let block = self.slab.at_mut(id);
        (block.queue, block.fence) = (SHARED, 0);
        if let Some(bins) = self.queues.bins_mut(SHARED, small) {
            bins.insert(&mut self.slab, id);
        }
    }

    /// Takes a free block out of its bin.
    pub fn unlist(&mut self, id: Id) {
        let block = self.slab.at(id);
        let (queue, small) = (block.queue, block.small);
        if let Some(bins) = self.queues.bins_from(queue, small) {
            bins.remove(&mut self.slab, id);
        }
    }
}
