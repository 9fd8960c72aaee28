//! Free blocks: in the bins of their queues, and merged with their neighbours.

use super::block::SHARED;
use super::block::{Id, NIL, State as Is};
use super::mutation::{Mutation, on};
use super::state::State;

impl<E: Copy> State<E> {
    /// Merges what is kept at hand.
    pub fn flush(&mut self) {
        self.merge(true, u32::MAX);
        self.merge(false, u32::MAX);
    }

    pub fn merge(&mut self, small: bool, most: u32) {
        let mut at = 0;
        for _ in 0..most {
            let Some(number) = self.queues.holder(at) else {
                break;
            };
            at = number + 1;
            self.pop_all(number, small);
        }
    }

    pub fn pop_all(&mut self, queue: u32, small: bool) {
        while let Some(queue) = self.queues.at(queue)
            && let Some(id) = queue.pop(&mut self.slab, small)
        {
            self.insert(id);
        }
    }

    /// As [`State::flush`], and merges what is free for everybody with its neighbours, whichever
    /// stream it was freed on.
    pub fn consolidate(&mut self) {
        self.flush();
        if on(Mutation::NoConsolidate) {
            return;
        }
        let mut at = 0;
        while let Some(queue) = self.queues.holder(at) {
            at = queue + 1;
            for small in [false, true] {
                for id in self.free_of(queue, small, 0) {
                    // One that was merged into another since is free no more.
                    if self.slab.at(id).state == Is::Free && self.is_complete(id) {
                        self.unlist(id);
                        self.insert(id);
                    }
                }
            }
        }
    }

    /// Makes a block free. It is merged with free neighbours where no later request has to wait longer for that.
    pub fn insert(&mut self, id: Id) {
        let mut id = id;
        self.slab.at_mut(id).state = Is::Free;
        let mut left = self.slab.at(id).left;
        while self.is_joinable(left, id) {
            self.unlist(left);
            self.absorb(left, id);
            id = left;
            left = self.slab.at(id).left;
            if on(Mutation::MergeOne) {
                break;
            }
        }
        let mut right = self.slab.at(id).right;
        while self.is_joinable(right, id) {
            self.unlist(right);
            self.absorb(id, right);
            right = self.slab.at(id).right;
            if on(Mutation::MergeOne) {
                break;
            }
        }
        self.list(id);
    }

    pub fn is_joinable(&self, neighbour: Id, id: Id) -> bool {
        let (a, b) = (self.slab.at(neighbour), self.slab.at(id));
        neighbour != NIL
            && a.state == Is::Free
            && (a.queue == b.queue || self.is_complete(neighbour) || self.is_complete(id))
    }

    /// Makes `right` a part of its neighbour `left`.
    pub fn absorb(&mut self, left: Id, right: Id) {
        let keeps = !self.is_complete(left);
        let gone = self.slab.at(right).clone();
        self.gone(gone.address);
        self.slab.at_mut(right).state = Is::Busy;
        self.slab.remove(right);
        self.slab.at_mut(gone.right).left = left;
        let block = self.slab.at_mut(left);
        block.right = gone.right;
        block.size += gone.size;
        block.tick = block.tick.max(gone.tick);
        if block.queue == gone.queue && on(Mutation::AbsorbOlder) {
            block.fence = block.fence.min(gone.fence);
        } else if block.queue == gone.queue {
            block.fence = block.fence.max(gone.fence);
        } else if keeps == on(Mutation::AbsorbOther) {
            (block.queue, block.fence) = (gone.queue, gone.fence);
        }
    }

    /// Puts a free block into its queue's bin.
    pub fn list(&mut self, id: Id) {
        let block = self.slab.at_mut(id);
        block.state = Is::Free;
        let (queue, small) = (block.queue, block.small);
        if let Some(bins) = self.queues.bins_mut(queue, small) {
            bins.insert(&mut self.slab, id);
            return;
        }
        // Of a queue that has ended since: free for everybody.
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
