//! Queues that end, and the move of their blocks to other queues.

use super::block::{Id, SHARED, State as Is};
use super::state::State;
use super::stream_queue::StreamQueue;
use crate::handles::{Context, Stream};
use crate::rules;

impl<E: Copy> State<E> {
    /// Returns a queue and a fence behind all work submitted to a context, or to the whole device
    /// for context 0.
    pub fn behind_all_of(&mut self, context: Context) -> (u32, u64) {
        let queue = self.queues.of(match context {
            Context(0) => Stream::all_of_device(self.device),
            context => Stream::all_of(context),
        });
        (queue, self.queues.join(queue))
    }

    /// Ends a queue that has no stream and only complete work: its blocks are free for all streams.
    pub fn end_queue(&mut self, queue: u32) {
        if !self.queues.can_end(queue) {
            return;
        }
        self.move_blocks(queue, |_, _| (SHARED, 0));
        self.queues.end(queue);
    }

    /// Ends the queues of a context that ends with its streams, whose work is complete. Blocks
    /// freed on no particular stream wait for the other contexts of the device. Returns the events
    /// that are no longer needed.
    pub fn end_queues_of(&mut self, context: Context) -> Vec<E> {
        let mut events = Vec::new();
        for number in self.queues.numbers() {
            let serves = |queue: &&StreamQueue<E>| queue.stream.is_some() || queue.ends;
            let is_its_own = |queue: &&StreamQueue<E>| serves(queue) && queue.context == context;
            let own = self.queues.get(number).filter(is_its_own);
            let ordered = own.map(|queue| queue.ordered);
            if !rules::events_end_with_context(ordered.is_some()) {
                continue;
            }
            if rules::ends_alone(ordered == Some(true)) {
                self.queues.unlist(number);
                if let Some(queue) = self.queues.at(number) {
                    events.extend(queue.fences.forget());
                }
                self.end_queue(number);
            } else {
                events.extend(self.merge_queue(number, Context(0)));
            }
        }
        events
    }

    /// Ends a queue without a stream, whose last work is known only as a part of a context's. Its
    /// blocks wait for that context, or for the device if `context` is 0. Returns the events that
    /// are no longer needed.
    pub fn merge_queue(&mut self, queue: u32, context: Context) -> Vec<E> {
        self.queues.unlist(queue);
        let (every, behind) = self.behind_all_of(context);
        self.move_blocks(queue, |state, id| {
            if state.is_complete(id) {
                (SHARED, 0)
            } else {
                (every, behind)
            }
        });
        let events = self
            .queues
            .at(queue)
            .map(|queue| queue.fences.forget().collect());
        self.queues.end(queue);
        events.unwrap_or_default()
    }

    /// Moves all free blocks, stale places and exported blocks of a queue to the queues that `to`
    /// names.
    fn move_blocks(&mut self, queue: u32, to: impl Fn(&Self, Id) -> (u32, u64)) {
        for small in [false, true] {
            while let Some(id) = self
                .queues
                .at(queue)
                .and_then(|l| l.pop(&mut self.slab, small))
            {
                let place = to(self, id);
                let block = self.slab.at_mut(id);
                (block.queue, block.fence) = place;
                self.insert(id);
            }
            // Repeated because a moved block may have been merged into one of this queue.
            loop {
                let ids = self.free_of(queue, small, 0);
                if ids.is_empty() {
                    break;
                }
                for id in ids {
                    // A block that was merged into another since is not free any more.
                    let block = self.slab.at(id);
                    if block.state != Is::Free || block.queue != queue {
                        continue;
                    }
                    self.unlist(id);
                    let place = to(self, id);
                    let block = self.slab.at_mut(id);
                    (block.queue, block.fence) = place;
                    self.insert(id);
                }
            }
        }
        let stale = self.space.stale.iter().map(|(id, _)| *id);
        let others: Vec<Id> = stale.chain(self.exported.iter().copied()).collect();
        for id in others {
            if self.slab.at(id).queue == queue {
                let place = to(self, id);
                let block = self.slab.at_mut(id);
                (block.queue, block.fence) = place;
            }
        }
    }
}
