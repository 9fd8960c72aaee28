//! Streams, contexts, captures and graphs of the program, as far as a pool must know of them.

use super::block::{Id, State as Is};
use super::serve::Pool;
use super::state::State;
use crate::driver::Driver;
use crate::handles::Context;
use crate::handles::Stream;
use crate::rules::{self, Call};
use crate::types::PATIENCE;

/// Fences of some streams' queues, taken before these streams are synchronised.
#[derive(Clone, Debug, Default)]
pub struct Mark(Vec<(u32, u64)>);

impl<D: Driver> Pool<D> {
    /// Marks the frees before a stream, or a whole context, is synchronised; see
    /// [`Pool::synchronized`]. `alone`: no other context's work may use memory freed on no
    /// particular stream.
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

    /// Takes note that the marked streams were synchronised: all work before the marked frees is
    /// complete.
    pub fn synchronized(&self, marks: &Mark) {
        let mut state = self.state.lock();
        for (queue, fence) in &marks.0 {
            // A queue that was ended since has later fences.
            if let Some(queue) = state.queues.at(*queue) {
                queue.fences.completed(*fence);
            }
        }
    }

    /// Takes note that a stream is about to be destroyed: its blocks are free for all streams when
    /// its work is complete. A later stream with the same handle is another one.
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
        // The stream itself may capture.
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

    /// Takes note that a thread and its default streams have ended. Makes no driver call but to
    /// retire events.
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

    /// Takes note that a context has ended with its streams. Their work is complete, and their
    /// events are void. Frees the blocks that were allocated in it for no particular stream; other
    /// contexts may still use these. Returns the bytes freed.
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

    /// Takes note that all work is complete, if no remaining context could use the device's memory.
    /// `is_alone` tells this; a free after its answer belongs to a later fence.
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

    /// Takes note that a stream is about to capture, under a number of its own. No fence is made
    /// until the capture ends.
    pub fn capture_began(&self, capture: u64) {
        // A thread that makes a fence holds this lock, so no fence is being made when the capture
        // begins. A driver call under the lock may take longer, and the capture must not wait
        // forever.
        let _misses = self.misses.try_lock_for(PATIENCE);
        self.state.lock().captures.began(capture);
    }

    /// Takes note that a capture ended in `graph`, or in nothing.
    pub fn capture_ended(&self, capture: u64, graph: Option<u64>) {
        let mut state = self.state.lock();
        let blocks = state.captures.ended(capture, graph);
        state.return_blocks(blocks);
    }

    /// Takes note that an open capture cannot end in a graph any more: the driver has invalidated
    /// it.
    pub fn capture_broken(&self, capture: u64) {
        let mut state = self.state.lock();
        let blocks = state.captures.broken(capture);
        state.return_blocks(blocks);
    }

    /// Takes note that `to` was instantiated, cloned or updated from `from`, or contains it.
    pub fn graph_derived(&self, from: u64, to: u64) {
        self.state.lock().captures.derived(from, to);
    }

    /// Takes note that a graph or an instance of one was destroyed.
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

    /// Makes the quarantined blocks of an ended context wait for the whole device instead.
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

    /// Forgets all blocks, memory and queues. Returns the events.
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
        (self.leaving, self.cleared) = (before.leaving, before.cleared + 1);
        events
    }
}
