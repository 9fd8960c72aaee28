//! Fences of a pool: queries of complete work, and streams that wait for other streams.

use super::block::{Id, State as Is};
use super::miss_state::{MissGuard, unlocked};
use super::serve::Pool;
use super::state::State;
use crate::driver::Driver;
use crate::handles::{Context, Stream};
use crate::policy::Reuse;
use crate::rules::{self, Call};
use crate::types::{Grant, Source};
use std::ops::Range;

/// Maximum number of stream queues that one miss queries. The next miss goes on with other queues.
const LOOKS: u32 = 64;
/// Pages to which the spare part of the budget is limited, unless two parts in a thousand are more.
/// Blocks end within pages, so a pool needs some pages to spare. Fewer cost more memory than they
/// save, because smaller blocks take the place of moved memory.
const HALF_PAGES: u64 = 16;
/// Additional pages in the budget for each thread cache in use.
const CACHED_PAGES: u64 = 16;
/// Maximum number of queues of destroyed streams that are queried when one more stream is
/// destroyed.
const ENDS: u32 = 4;

/// Work that a request must come after: a fence of a queue, and the stream that the queue served.
struct After {
    queue: u32,
    fence: u64,
    freed_on: Option<Stream>,
}

impl<E: Copy> State<E> {
    /// Bytes that the pool may hold before it moves memory. This is the peak of the allocated
    /// bytes, with `more` bytes counted as allocated, and a little to spare.
    pub fn budget(&self, more: u64) -> u64 {
        let most = self.stats.allocated.saturating_add(more);
        let most = self.stats.peak_allocated.max(most);
        let spare = (most / 1000).saturating_mul(self.settings.spare);
        let halves = self.settings.page.saturating_mul(HALF_PAGES);
        let beside = CACHED_PAGES * u64::from(self.in_caches.count_ones());
        let beside = self.settings.page.saturating_mul(beside);
        most.saturating_add(spare.min(halves.max(most / 500)))
            .saturating_add(beside)
    }

    /// Tells whether a stream may be made to wait for other work, and whether the host may wait
    /// instead.
    fn ways(&self, stream: Stream) -> (bool, bool) {
        if stream.is_ordered() {
            return (self.settings.orders, self.settings.waits);
        }
        let orders = self.settings.reuse == Reuse::Order;
        (orders, !orders)
    }

    /// Returns the smallest free block for a request, even if work may still use it.
    fn pending(&mut self, need: u64) -> Option<Id> {
        let small = self.is_small(need);
        let mut best: Option<(u64, Id)> = None;
        let mut at = 0;
        while let Some(other) = self.queues.holder(at) {
            at = other + 1;
            let bins = self.queues.get(other).and_then(|other| other.bins(small));
            let Some(id) = bins.and_then(|bins| bins.best(&self.slab, need)) else {
                continue;
            };
            let size = self.slab.at(id).size;
            if size <= self.largest_for(need) && best.is_none_or(|(least, _)| size < least) {
                best = Some((size, id));
            }
        }
        best.map(|(_, id)| id)
    }

    /// Frees a reserved block again because no stream could wait for it. If its queue has ended
    /// meanwhile, the block waits for the whole device.
    fn leave(&mut self, id: Id, after: &After) {
        if self.stream_of(after.queue) != after.freed_on {
            let place = self.behind_all_of(Context(0));
            let block = self.slab.at_mut(id);
            (block.queue, block.fence) = place;
        }
        self.insert(id);
    }

    /// The stream that a queue serves.
    fn stream_of(&self, queue: u32) -> Option<Stream> {
        self.queues.get(queue).and_then(|queue| queue.stream)
    }

    /// Takes former places of moved pieces, as busy blocks: places whose work is complete, or all
    /// places of one handle.
    pub fn stale(&mut self, handle: Option<u64>) -> Vec<(u32, u64)> {
        let all = std::mem::take(&mut self.space.stale);
        let is_ready = |(id, of): &(u32, u64)| match handle {
            Some(handle) => *of == handle,
            None => rules::may_unmap(self.is_complete(*id)),
        };
        let (ready, waiting): (Vec<_>, Vec<_>) = all.into_iter().partition(is_ready);
        self.space.stale = waiting;
        for (id, _) in &ready {
            self.slab.at_mut(*id).state = Is::Busy;
        }
        ready
    }
}

impl<D: Driver> Pool<D> {
    /// Queries all queues for complete work, and closes their open fences so that later queries
    /// tell more. The caller holds the lock of misses. Does nothing while a stream captures.
    pub(super) fn refresh(&self, driver: &D) {
        self.look_at(driver, 0, u32::MAX, true);
    }

    /// Queries some queues as [`Pool::refresh`] does, other queues each time.
    pub(super) fn refresh_some(&self, driver: &D) {
        let from = self.state.lock().next_look;
        let next = self.look_at(driver, from, LOOKS, true);
        self.state.lock().next_look = next;
    }

    /// Ends some of the queues that have no stream and no incomplete work.
    pub(super) fn end_some(&self, driver: &D) {
        let from = self.state.lock().next_end;
        let next = self.look_at(driver, from, ENDS, false);
        self.state.lock().next_end = next;
    }

    /// Queries at most `most` queues, from number `from` on and then from the first. Returns the
    /// number to go on from: 0 if all were queried.
    fn look_at(&self, driver: &D, from: u32, most: u32, all: bool) -> u32 {
        let mut left = most;
        for (mut queue, upto) in [(from, u32::MAX), (0, from)] {
            while let Some(next) = self.look(driver, queue..upto, all) {
                queue = next + 1;
                left -= 1;
                if left == 0 {
                    return queue;
                }
            }
        }
        0
    }

    /// Queries the first queue in a range that may have incomplete fences, and returns its number.
    /// Without `all`, skips queues whose stream exists.
    fn look(&self, driver: &D, queues: Range<u32>, all: bool) -> Option<u32> {
        let (mut from, mut closed) = (queues.start, false);
        loop {
            let mut state = self.state.lock();
            if !rules::may_call(Call::Query, state.captures.is_open()) {
                return None;
            }
            let queue = state
                .queues
                .pending(from)
                .filter(|queue| *queue < queues.end)?;
            let at = state.queues.at(queue)?;
            if !all && !at.ends {
                from = queue + 1;
                continue;
            }
            let (stream, lacks) = (at.stream, at.fences.lacks_record());
            let superfluous = at.fences.superfluous(at.fences.complete());
            let waiting = at.fences.first();
            if superfluous.is_none() && state.queues.can_end(queue) {
                state.end_queue(queue);
                return Some(queue);
            }
            drop(state);
            from = queue;
            if let Some(event) = superfluous {
                driver.retire(event);
                continue;
            }
            if let Some((id, event)) = waiting
                && matches!(driver.is_complete(event), Ok(true))
            {
                if let Some(at) = self.state.lock().queues.at(queue) {
                    at.fences.completed(id);
                }
                if closed {
                    return Some(queue);
                }
                continue;
            }
            if let Some(stream) = stream
                && lacks
                && !closed
                && self.close(driver, queue, stream).is_some()
            {
                // Queried at once: the request need not take new memory if the work of a free block
                // is complete.
                closed = true;
                continue;
            }
            return Some(queue);
        }
    }

    /// Closes a queue's open fence and records its event. `None` if that fails.
    pub(super) fn close(&self, driver: &D, queue: u32, stream: Stream) -> Option<(u64, D::Event)> {
        let fence = self.state.lock().queues.at(queue)?.fences.close_if_joined();
        let event = driver.record(stream).ok()?;
        let mut state = self.state.lock();
        state.queues.at(queue)?.fences.recorded(fence, event);
        state.queues.pends(queue);
        Some((fence, event))
    }

    /// Takes a free block that other work may still use. The stream, or else the host, waits for
    /// this work. No other thread can take the block during the wait. `None` if there is no such
    /// block or the wait fails.
    pub(super) fn take_ordered(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        stream: Stream,
        bytes: u64,
    ) -> Option<Grant> {
        let mut state = self.state.lock();
        let (orders, waits) = state.ways(stream);
        let may_order = rules::may_call(Call::Order, state.captures.is_open());
        if !may_order || !(orders || waits) {
            return None;
        }
        let need = state.block_bytes(bytes);
        state.merge_all();
        let id = state.pending(need)?;
        state.reserve_part(id, need);
        let block = state.slab.at_mut(id);
        block.state = Is::Busy;
        let (queue, fence) = (block.queue, block.fence);
        let freed_on = state.stream_of(queue);
        let after = After {
            queue,
            fence,
            freed_on,
        };
        let cleared = state.cleared;
        drop(state);
        let source = self.order_behind(driver, misses, stream, &after);
        let mut state = self.state.lock();
        if state.cleared != cleared {
            return None;
        }
        let Some(source) = source else {
            state.leave(id, &after);
            return None;
        };
        let queue = state.queues.of(stream);
        Some(state.grown(id, queue, bytes, source))
    }

    /// Makes a stream, or else the host, wait for a fence of a queue. `None` if that is impossible.
    fn order_behind(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        stream: Stream,
        after: &After,
    ) -> Option<Source> {
        let mut state = self.state.lock();
        let (orders, _) = state.ways(stream);
        let queue = state.queues.of(stream);
        let at = state.queues.at(after.queue)?;
        let covering = at.fences.covering(after.fence);
        // The queue may serve another stream by now.
        if at.stream != after.freed_on {
            return None;
        }
        drop(state);
        let close = || self.close(driver, after.queue, after.freed_on?);
        let (fence, event) = covering.or_else(close)?;
        if !orders {
            unlocked(misses, || driver.wait(event)).ok()?;
            let mut state = self.state.lock();
            let at = state.queues.at(after.queue)?;
            at.fences.completed(fence);
            return Some(Source::Waited);
        }
        driver.order(stream, event).ok()?;
        let mut state = self.state.lock();
        state.queues.ordered(queue, after.queue, fence);
        Some(Source::Ordered)
    }

    /// Returns a fence and an event that cover all frees on a queue. `None` if the work is
    /// complete, or if no event can be recorded.
    fn latest(&self, driver: &D, queue: u32) -> Option<(u64, D::Event)> {
        let mut state = self.state.lock();
        let at = state.queues.at(queue)?;
        if !at.fences.lacks_record() {
            return at.fences.last();
        }
        let stream = at.stream?;
        drop(state);
        self.close(driver, queue, stream)
    }

    /// Makes a stream wait for all other streams that have freed blocks. `None` if it waits for
    /// none.
    pub(super) fn order_behind_all(&self, driver: &D, stream: Stream) -> Option<Source> {
        let mut state = self.state.lock();
        if state.captures.is_open() || !state.ways(stream).0 {
            return None;
        }
        let queue = state.queues.of(stream);
        drop(state);
        let (mut any, mut next) = (None, 0);
        while let Some(other) = self.pending_from(next) {
            next = other + 1;
            if other == queue && stream.is_ordered() {
                continue;
            }
            let Some((fence, event)) = self.latest(driver, other) else {
                continue;
            };
            if driver.order(stream, event).is_ok() {
                self.state.lock().queues.ordered(queue, other, fence);
                any = Some(Source::Ordered);
            }
        }
        any
    }

    fn pending_from(&self, queue: u32) -> Option<u32> {
        self.state.lock().queues.pending(queue)
    }

    /// Waits until all work that used free blocks is complete, as far as the host can wait for it.
    pub(super) fn finish_all(&self, driver: &D, misses: &mut MissGuard<'_, D>) {
        self.finish_queues(driver, misses, |_| true);
    }

    /// Waits until the work is complete that was submitted before frees of `cudaMalloc` memory, as
    /// far as the host can wait for it. Natively each of these frees waited.
    pub(super) fn finish_for_all(&self, driver: &D, misses: &mut MissGuard<'_, D>) {
        self.finish_queues(driver, misses, |stream| {
            stream.is_some_and(|one| !one.is_ordered())
        });
    }

    fn finish_queues(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        chosen: impl Fn(Option<Stream>) -> bool,
    ) {
        let mut next = 0;
        while let Some(queue) = self.pending_from(next) {
            next = queue + 1;
            let stream = self.state.lock().stream_of(queue);
            if !chosen(stream) {
                continue;
            }
            let may_wait = rules::may_call(Call::Wait, self.state.lock().captures.is_open());
            let finished = if may_wait {
                let latest = self.latest(driver, queue);
                latest.and_then(|(fence, event)| {
                    let waited = unlocked(misses, || driver.wait(event));
                    waited.is_ok().then_some(fence)
                })
            } else {
                self.finish_beside(driver, misses, queue)
            };
            if let Some(fence) = finished {
                let mut state = self.state.lock();
                state.stats.host_waits += 1;
                if let Some(at) = state.queues.at(queue) {
                    at.fences.completed(fence);
                }
            }
        }
    }

    /// Waits, while streams capture, until the work on a queue's free blocks is complete. Returns
    /// the fence that is complete then.
    fn finish_beside(&self, driver: &D, misses: &mut MissGuard<'_, D>, queue: u32) -> Option<u64> {
        let wait = |misses: &mut MissGuard<'_, D>, event| {
            unlocked(misses, || driver.wait_beside(event)).is_ok()
        };
        let mut state = self.state.lock();
        let at = state.queues.at(queue)?;
        if !at.fences.lacks_record() {
            let (fence, event) = at.fences.last()?;
            drop(state);
            return wait(misses, event).then_some(fence);
        }
        let stream = at.stream?;
        let fence = at.fences.close_if_joined();
        drop(state);
        if stream.is_ordered()
            && let Ok(event) = driver.record_beside(stream)
        {
            let mut state = self.state.lock();
            state.queues.at(queue)?.fences.recorded(fence, event);
            state.queues.pends(queue);
            drop(state);
            return wait(misses, event).then_some(fence);
        }
        let drained = unlocked(misses, || driver.drain(stream));
        drained.is_ok().then_some(fence)
    }

    /// Waits until the work that used a block is complete. Returns false if the host cannot wait
    /// for it.
    pub(super) fn finish(&self, driver: &D, misses: &mut MissGuard<'_, D>, id: u32) -> bool {
        let mut state = self.state.lock();
        if state.is_complete(id) {
            return true;
        }
        let block = state.slab.at(id);
        let (queue, fence) = (block.queue, block.fence);
        if state.captures.is_open() {
            return false;
        }
        let Some(at) = state.queues.at(queue) else {
            return false;
        };
        let stream = at.stream;
        let covering = at.fences.covering(fence);
        drop(state);
        let Some((fence, event)) =
            covering.or_else(|| stream.and_then(|stream| self.close(driver, queue, stream)))
        else {
            return false;
        };
        if unlocked(misses, || driver.wait(event)).is_err() {
            return false;
        }
        if let Some(at) = self.state.lock().queues.at(queue) {
            at.fences.completed(fence);
        }
        self.state.lock().stats.host_waits += 1;
        true
    }
}
