//! What the program does to streams, contexts, captures and graphs, as far as a pool must know of it.

use super::block::{Id, State as Is};
use super::serve::Pool;
use super::state::State;
use crate::driver::Driver;
use crate::handles::Context;
use crate::handles::Stream;
use crate::rules::{self, Call};
use crate::types::PATIENCE;

/// A point in the frees of each of some streams, taken before they are synchronised.
#[derive(Clone, Debug, Default)]
pub struct Mark(Vec<(u32, u64)>);

impl<D: Driver> Pool<D> {
    /// A point before a stream, or a whole context, is synchronised; see [`Pool::synchronized`].
    /// `alone`: no other context's work may use what was freed on no stream in particular.
    pub fn mark(&self, context: Context, stream: Option<Stream>, alone: bool) -> Mark {
        let mut state = self.state.lock();
        let mut marks = Vec::new();
        let stream = rules::marked_stream(stream);
        let mut next = match stream {
            Some(stream) => state.queues.known(stream),
            None => state.queues.pending(0),
        };
        while let Some(number) = next {
            if let Some(queue) = state.queues.at(number)
                && rules::may_mark(queue.context == context)
                && rules::may_mark_shared(alone || queue.ordered)
            {
                marks.push((number, queue.fences.mark()));
            }
            next = match stream {
                Some(_) => None,
                None => state.queues.pending(number + 1),
            };
        }
        Mark(marks)
    }

    /// What was marked has been synchronised: what was freed before is complete.
    pub fn synchronized(&self, marks: &Mark) {
        let mut state = self.state.lock();
        for (queue, fence) in &marks.0 {
            // A queue that was ended since has later fences.
            if let Some(queue) = state.queues.at(*queue) {
                queue.fences.completed(*fence);
            }
        }
    }

    /// A stream is about to be destroyed: what was freed on it is free when its work is over. A stream
    /// with the same handle later is another one.
    pub fn stream_gone(&self, driver: &D, stream: Stream) {
        if self.state.lock().queues.known(stream).is_none() {
            return;
        }
        let _misses = self.misses.lock();
        self.end_some(driver);
        let mut state = self.state.lock();
        let Some(queue) = state
            .queues
            .known(stream)
            .filter(|_| rules::queue_ends_with_stream())
        else {
            return;
        };
        let lacks = state
            .queues
            .at(queue)
            .is_some_and(|queue| queue.fences.lacks_record());
        // It may be the one that captures.
        let may_record = rules::may_call(Call::Record, state.captures.is_open());
        drop(state);
        let recorded = !rules::needs_last_event(lacks)
            || may_record && self.close(driver, queue, stream).is_some();
        let mut state = self.state.lock();
        let void = if recorded {
            state.queues.unlist(queue);
            state.end_queue(queue);
            Vec::new()
        } else {
            state.merge_queue(queue, stream.context)
        };
        drop(state);
        void.into_iter().for_each(|event| driver.retire(event));
    }

    /// A thread has ended, and with it its default streams. Calls the driver for nothing.
    pub fn thread_gone(&self, driver: &D, thread: u64) {
        let mut state = self.state.lock();
        let mut void = Vec::new();
        for queue in state.queues.of_thread(thread) {
            if let Some(context) = state.queues.get(queue).map(|queue| queue.context) {
                void.extend(state.merge_queue(queue, context));
            }
        }
        drop(state);
        void.into_iter().for_each(|event| driver.retire(event));
    }

    /// Prepares for the end of a context whose own work is complete.
    /// Blocks that were freed in it wait for the other contexts of the device.
    pub fn context_leaves(&self, driver: &D, context: Context) {
        let _misses = self.misses.lock();
        let events = self.state.lock().end_queues_of(context);
        events.into_iter().for_each(|event| driver.retire(event));
    }

    /// Takes note that a context has ended with its streams. Their work is complete, their events are void.
    /// Frees the blocks that were allocated in it for no stream in particular.
    /// Other contexts may still use those.
    /// Returns their bytes.
    pub fn context_gone(&self, driver: &D, context: Context) -> u64 {
        let _misses = self.misses.lock();
        let mut state = self.state.lock();
        let before = state.stats.allocated;
        if rules::blocks_end_with_context(state.stats.shared.is_some()) {
            state.free_all_of(context);
        }
        let gone = before - state.stats.allocated;
        state.forget_context(context);
        let events = state.end_queues_of(context);
        drop(state);
        events.into_iter().for_each(|event| driver.retire(event));
        gone
    }

    /// Takes note that all work is complete, if no context is left that could use the device's memory.
    /// `is_alone` tells that; a free after its answer belongs to a later fence.
    pub fn device_idle(&self, is_alone: impl FnOnce() -> bool) {
        let device = Stream::all_of_device(self.device);
        let mut state = self.state.lock();
        let Some(number) = state.queues.known(device) else {
            return;
        };
        let Some(queue) = state.queues.at(number) else {
            return;
        };
        let fence = queue.fences.close_if_joined();
        drop(state);
        if is_alone()
            && let Some(queue) = self.state.lock().queues.at(number)
        {
            queue.fences.completed(fence);
        }
    }

    /// A stream is about to capture, under a number that no other capture has: no fence is made until
    /// that ends.
    pub fn capture_began(&self, capture: u64) {
        // A thread that makes a fence holds this: none is being made when the capture begins. One that waits
        // for the device may take longer; the capture must not wait for ever.
        let _misses = self.misses.try_lock_for(PATIENCE);
        self.state.lock().captures.began(capture);
    }

    /// A capture ended in `graph`, or in nothing.
    pub fn capture_ended(&self, capture: u64, graph: Option<u64>) {
        let mut state = self.state.lock();
        let blocks = state.captures.ended(capture, graph);
        state.return_blocks(blocks);
    }

    /// A capture that goes on cannot end in a graph any more: the driver has invalidated it.
    pub fn capture_broken(&self, capture: u64) {
        let mut state = self.state.lock();
        let blocks = state.captures.broken(capture);
        state.return_blocks(blocks);
    }

    /// `to` was instantiated, cloned or updated from `from`, or contains it.
    pub fn graph_derived(&self, from: u64, to: u64) {
        self.state.lock().captures.derived(from, to);
    }

    /// A graph or an instance of one was destroyed.
    pub fn graph_destroyed(&self, graph: u64) {
        let mut state = self.state.lock();
        let blocks = state.captures.destroyed(graph);
        state.return_blocks(blocks);
    }
}

impl<E: Copy> State<E> {
    /// Frees the blocks that were allocated in a context for no stream in particular.
    fn free_all_of(&mut self, context: Context) {
        let of_context = |id: &Id| {
            let block = self.slab.at(*id);
            block.state == Is::Live && block.for_all && block.context == context
        };
        let all: Vec<Id> = self.map.values().copied().filter(of_context).collect();
        let queue = self.queues.of(Stream::all_of(context));
        for id in all {
            // A live block can be freed.
            let _ = self.free::<(), ()>(id, queue, |_, _, _| false, |_| ());
        }
    }

    /// What graphs may still use waits for what its device does, not for a context that has ended.
    fn forget_context(&mut self, context: Context) {
        if self.stats.quarantined == 0 {
            return;
        }
        for id in self.map.values() {
            let block = self.slab.at_mut(*id);
            if block.state == Is::Quarantined && block.context == context {
                block.context = Context(0);
            }
        }
    }

    /// Forgets everything. Returns the events.
    pub fn clear(&mut self) -> Vec<E> {
        let mut events = Vec::new();
        for number in self.queues.numbers() {
            let queue = self.queues.at(number).into_iter();
            events.extend(queue.flat_map(|queue| queue.fences.forget()));
        }
        let fresh = State::new(self.device, self.settings.clone());
        let queues = self.queues.anew();
        let before = std::mem::replace(self, fresh);
        (self.stats, self.tick, self.calm) = (before.stats, before.tick, before.stats.freed_bytes);
        (self.stats.allocated, self.stats.requested) = (0, 0);
        self.stats.shared = None;
        (self.stats.live, self.stats.quarantined, self.stats.reserved) = (0, 0, 0);
        (self.captures, self.queues) = (before.captures, queues);
        self.captures.forget(|_| true);
        events
    }
}
