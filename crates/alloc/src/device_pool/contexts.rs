//! What the program does to contexts, captures and graphs, as far as the pool must know of it.

use super::device::Device;
use super::pool::{DevicePool, Guard};
use super::thread_cache::Flush;
use super::types::{Gone, Mark};
use super::work::GARBAGE;
use crate::handles::Context;
use crate::rules;
use crate::types::PATIENCE;
use parking_lot::MutexGuard;

impl<D: Device> DevicePool<D> {
    /// The context was destroyed or reset: forgets its blocks, fences and events. No driver call.
    /// Returns what was handed out and held in it.
    pub fn context_gone(&self, context: Context) -> Gone {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::All);
        let gone = state.context_gone(context);
        drop(state);
        self.changed.notify_all();
        gone
    }

    /// Takes note of a context, so that fences of its device cover its work. Contexts that allocate
    /// or take part in peer access are known without it.
    pub fn context_known(&self, context: Context) {
        let mut state = self.state.lock();
        if self.arena(&mut state, context).is_ok() {
            self.settle(&mut state);
        }
    }

    /// Work of `accessor` may reach memory of `owner` from now on. To be called before the caller
    /// can submit such work.
    pub fn peer_enabled(&self, accessor: Context, owner: Context) {
        let mut state = self.state.lock();
        if let Ok(owner) = self.arena(&mut state, owner) {
            // Where the accessor's device cannot be told it counts as another one.
            let _ = self.arena(&mut state, accessor);
            state.peer_enabled(accessor, owner);
            self.settle(&mut state);
        }
    }

    /// Work that `accessor` submits from now on cannot reach memory of `owner`.
    pub fn peer_disabled(&self, accessor: Context, owner: Context) {
        let mut state = self.state.lock();
        // What came back before belongs to fences that still cover the accessor.
        self.flush_caches(&mut state, Flush::Back);
        state.peer_disabled(accessor, owner);
    }

    /// A point before a context is synchronised; see [`DevicePool::synchronized`].
    pub fn mark(&self, context: Context) -> Mark {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::Back);
        let index = state.index_of(context);
        match index.and_then(|index| state.arenas.get_mut(index)) {
            Some(Some(arena)) => Mark {
                arena: arena.serial,
                fence: arena.fences.timeline.mark(),
            },
            _ => Mark { arena: 0, fence: 0 },
        }
    }

    /// The context was synchronised after `mark`: what was freed before the mark is complete. Has
    /// no effect if other contexts may reach the memory.
    pub fn synchronized(&self, context: Context, mark: Mark) {
        let mut state = self.state.lock();
        let ours = state
            .arena(mark.arena)
            .is_some_and(|arena| arena.context == context);
        let alone = state.cover(mark.arena).contexts.is_single();
        if ours && rules::may_mark_shared(alone) {
            state.completed(mark.arena, mark.fence);
            self.sweep(&mut state, GARBAGE);
        }
    }

    /// A stream is about to capture, under a number that no other capture has. Returns when no call
    /// is in flight that would invalidate it.
    pub fn capture_began(&self, capture: u64) {
        let mut state = self.state.lock();
        state.captures.began(capture);
        if let Some(thread_cache) = &self.thread_cache {
            thread_cache.close(&mut state);
        }
        self.changed
            .wait_while_for(&mut state, |state| state.calls > 0, PATIENCE);
    }

    /// A capture ended in `graph`, or in nothing.
    pub fn capture_ended(&self, capture: u64, graph: Option<u64>) {
        let mut state = self.state.lock();
        let blocks = state.captures.ended(capture, graph);
        if let Some(thread_cache) = &self.thread_cache
            && !state.captures.is_open()
        {
            thread_cache.open();
        }
        self.returned(&mut state, blocks);
    }

    /// A capture that goes on cannot end in a graph any more: the driver has invalidated it.
    pub fn capture_broken(&self, capture: u64) {
        let mut state = self.state.lock();
        let blocks = state.captures.broken(capture);
        self.returned(&mut state, blocks);
    }

    /// `to` was instantiated, cloned or updated from `from`, or contains it: it holds what `from`
    /// holds.
    pub fn graph_derived(&self, from: u64, to: u64) {
        self.state.lock().captures.derived(from, to);
    }

    /// A graph or an instance of one was destroyed.
    pub fn graph_destroyed(&self, graph: u64) {
        let mut state = self.state.lock();
        let blocks = state.captures.destroyed(graph);
        self.returned(&mut state, blocks);
    }

    /// The arena of a context, made if there is none.
    pub(super) fn arena(
        &self,
        state: &mut Guard<'_, D>,
        context: Context,
    ) -> Result<u64, D::Error> {
        if let Some(Some(arena)) = state
            .index_of(context)
            .and_then(|index| state.arenas.get(index))
        {
            return Ok(arena.serial);
        }
        let (ordinal, born) = MutexGuard::unlocked(state, || {
            let ordinal = self.device.ordinal(context)?;
            Ok((ordinal, self.device.born()))
        })?;
        Ok(state.add_arena(context, born, ordinal))
    }
}
