//! Cache of blocks for one thread (`thread_caches.rs`).

use super::block::{ByAddress, Id, NIL, Slab, State as Is};
use super::exact_fit::{SLOTS, slot};
use super::state::{State, is_small};
use crate::handles::{Address, Context, Stream};
use crate::per_thread::own;
use crate::rules;
use crate::stats::Delta;
use crate::types::{Freed, Grant, Source, Stamp};

/// Maximum number of blocks of one size in a cache.
const DEPTH: usize = 16;
/// Maximum bytes of a block that a cache keeps. Limits the blocks that [`Cache::adopt`] borrows,
/// too.
const LARGEST: u64 = 64 << 20;
/// Frees without a request between them, after which a cache keeps no more blocks: other threads
/// request the blocks of such a thread.
const UNASKED: u32 = 64;
/// Frees in a row on another stream than the cache's, after which the cache changes over to it.
const PATIENCE: u32 = 64;
/// Maximum number of blocks in a cache that were freed on no particular stream and wait for a
/// fence.
const FREED: usize = 32;

#[derive(Default)]
pub(super) struct Cache {
    /// Stream of all blocks in the cache. An ordered stream may reuse the blocks that it freed. If
    /// it stands for all streams of a context, the work of cached blocks is complete or ordered
    /// before theirs.
    stream: Option<Stream>,
    /// Stream of the thread's latest request on another stream than the cache's.
    asked: Option<Stream>,
    /// Blocks that the pool offered the cache since the thread's latest request.
    unasked: u32,
    /// Frees in a row on other streams than the cache's.
    strange: u32,
    /// Cached blocks by size. Allocated when the cache gets its first stream.
    ready: Option<Box<[Slot; SLOTS]>>,
    count: usize,
    /// Blocks freed on no particular stream that have yet to join a fence of the pool's.
    freed: Vec<Id>,
    out: ByAddress<Out>,
    /// Stamp of the latest free.
    latest: Stamp,
    delta: Delta,
}

/// Cached blocks of one size; the block freed last is at the end.
#[derive(Clone, Copy)]
struct Slot {
    size: u64,
    count: usize,
    blocks: [(Id, Address); DEPTH],
}

/// A live block that was allocated through the cache.
#[derive(Clone, Copy)]
struct Out {
    id: Id,
    size: u64,
    requested: u64,
}

impl Cache {
    #[inline(always)]
    fn slot(&mut self, size: u64) -> Option<&mut Slot> {
        self.ready.as_mut()?.get_mut(slot(size))
    }

    #[inline(always)]
    pub fn take(&mut self, stream: Stream, bytes: u64, need: u64) -> Option<Grant> {
        self.unasked = 0;
        let is_own = self.stream == Some(stream);
        if !is_own {
            self.asked = Some(stream);
        }
        if !rules::may_use_cached(is_own) {
            return None;
        }
        let slot = self.slot(need).filter(|slot| slot.size == need)?;
        slot.count = slot.count.checked_sub(1)?;
        let (id, address) = *slot.blocks.get(slot.count)?;
        self.count -= 1;
        let out = Out {
            id,
            size: need,
            requested: bytes,
        };
        self.out.insert(address, out);
        self.delta.granted(need, bytes);
        Some(Grant {
            address,
            requested: bytes,
            size: need,
            source: Source::Hit,
            after: self.latest,
            number: id,
        })
    }

    /// Frees a block allocated through the cache, on a stream or on none in particular. Returns the
    /// block's context, or `seen` as the error if the pool must free the block.
    #[inline(always)]
    pub fn free<S: Into<Stamp>, F: FnOnce(&Freed) -> S>(
        &mut self,
        (stream, device): (Option<Stream>, i32),
        address: Address,
        seen: F,
    ) -> Result<Context, F> {
        let own = match self.stream {
            Some(own) if stream == Some(own) || stream.is_none() && !own.is_ordered() => own,
            _ => return Err(seen),
        };
        let Some(out) = self.out.remove(&address) else {
            return Err(seen);
        };
        let (id, size, requested) = (out.id, out.size, out.requested);
        let for_all = !own.is_ordered();
        if !(match for_all {
            true => self.wait_for_fence(id),
            false => self.put(id, address, size),
        }) {
            self.out.insert(address, out);
            return Err(seen);
        }
        let now = seen(&Freed {
            address,
            requested,
            size,
            device,
            for_all,
            number: id,
        });
        self.latest = self.latest.max(now.into());
        self.delta.freed(size, requested);
        self.strange = 0;
        Ok(own.context)
    }

    /// Holds a freed block until it joins a fence of the pool's. Returns false if there is no room
    /// for it.
    #[inline(always)]
    fn wait_for_fence(&mut self, id: Id) -> bool {
        let has_place = self.freed.len() < FREED;
        if has_place {
            self.freed.push(id);
        }
        has_place
    }

    /// Takes over a block that the pool allocated for all streams of a context. Borrows more free
    /// blocks of its size that these streams may use.
    pub fn adopt<E: Copy>(&mut self, state: &mut State<E>, (stream, queue): (Stream, u32), id: Id) {
        let part = own() as u8;
        let block = state.slab.at_mut(id);
        (block.state, block.part) = (Is::InThreadCache, part);
        let (address, size, requested) = (block.address, block.size, block.requested);
        let out = Out {
            id,
            size,
            requested,
        };
        self.out.insert(address, out);
        self.latest = self.latest.max(state.latest);
        let small = is_small(size);
        let mut room = LARGEST.saturating_sub(size);
        while room >= size
            && self.has_place(size)
            && let Some(at) = state.queues.at(queue)
            && let Some(ready) = at.take_first(&mut state.slab, queue, size, small)
        {
            let block = state.slab.at_mut(ready);
            (block.state, block.part) = (Is::InThreadCache, part);
            (block.context, block.for_all) = (stream.context, true);
            let address = block.address;
            self.put(ready, address, size);
            room -= size;
        }
    }

    /// True if [`Cache::put`] has room for a block of this size.
    fn has_place(&mut self, size: u64) -> bool {
        let slot = self.slot(size);
        slot.is_some_and(|slot| slot.count == 0 || slot.size == size && slot.count < DEPTH)
    }

    /// Caches a free block. Returns false if there is no room for it.
    #[inline(always)]
    fn put(&mut self, id: Id, address: Address, size: u64) -> bool {
        let Some(slot) = self.slot(size) else {
            return false;
        };
        if slot.count == 0 {
            slot.size = size;
        } else if slot.size != size {
            return false;
        }
        let Some(place) = slot.blocks.get_mut(slot.count) else {
            return false;
        };
        *place = (id, address);
        slot.count += 1;
        self.count += 1;
        true
    }

    /// Caches a block that is being freed to the pool. Returns false if the block is too large, if
    /// there is no room for it, or if its thread only frees.
    #[inline(always)]
    pub fn keep(&mut self, slab: &mut Slab, id: Id, now: Stamp) -> bool {
        let block = slab.at_mut(id);
        self.unasked += 1;
        let may_keep = block.size <= LARGEST && self.unasked < UNASKED;
        if !may_keep || !self.put(id, block.address, block.size) {
            return false;
        }
        (block.state, block.part) = (Is::InThreadCache, own() as u8);
        self.latest = self.latest.max(now);
        true
    }

    /// True if the cache serves a stream. It changes over to a stream that its thread requests on,
    /// once it has no blocks or after [`PATIENCE`] frees.
    #[inline(always)]
    pub fn serves<E: Copy>(&mut self, state: &mut State<E>, stream: Stream) -> bool {
        if self.stream == Some(stream) {
            self.strange = 0;
            return true;
        }
        self.changes_over(state, stream)
    }

    #[cold]
    fn changes_over<E: Copy>(&mut self, state: &mut State<E>, stream: Stream) -> bool {
        if self.asked != Some(stream) {
            return false;
        }
        self.strange += 1;
        let is_empty = self.count == 0 && self.out.is_empty();
        if !is_empty && self.strange < PATIENCE {
            return false;
        }
        self.flush(state);
        self.strange = 0;
        self.stream = Some(stream);
        self.ready.get_or_insert_with(|| {
            Box::new(
                [Slot {
                    size: 0,
                    count: 0,
                    blocks: [(NIL, 0); DEPTH],
                }; SLOTS],
            )
        });
        true
    }

    /// Reports counts to the pool. Blocks freed on no particular stream join the open fence.
    #[inline(always)]
    pub fn report<E: Copy>(&mut self, state: &mut State<E>) {
        if self.delta.is_none() {
            return;
        }
        let delta = std::mem::take(&mut self.delta);
        state.served += delta.granted;
        let for_all = self.stream.is_some_and(|stream| !stream.is_ordered());
        state.stats.happened(&delta, for_all);
        if let Some(stream) = self.stream
            && !self.freed.is_empty()
        {
            state.latest = state.latest.max(self.latest);
            let queue = state.queues.of(stream);
            for id in self.freed.drain(..) {
                state.joins_fence(id, queue);
            }
        }
    }

    /// Gives the block at an address to the pool, if it is live.
    pub fn take_out<E: Copy>(&mut self, state: &mut State<E>, address: Address) {
        if let Some(out) = self.out.remove(&address) {
            self.report(state);
            state.latest = state.latest.max(self.latest);
            state.is_the_pools(out);
        }
    }

    /// Gives all blocks to the pool, also the live ones, and reports counts.
    pub fn flush<E: Copy>(&mut self, state: &mut State<E>) {
        self.report(state);
        state.latest = state.latest.max(self.latest);
        let Some(stream) = self.stream else { return };
        for (_, out) in self.out.drain() {
            state.is_the_pools(out);
        }
        if self.count > 0 {
            let queue = state.queues.of(stream);
            for slot in self.ready.iter_mut().flat_map(|slots| slots.iter_mut()) {
                for (id, _) in slot.blocks.iter().take(slot.count) {
                    match stream.is_ordered() {
                        true => state.joins_fence(*id, queue),
                        false => state.is_ready_again(*id),
                    }
                }
                slot.count = 0;
            }
            self.count = 0;
        }
    }
}

impl<E: Copy> State<E> {
    /// Makes a live block of a thread cache a live block of the pool.
    fn is_the_pools(&mut self, out: Out) {
        // Number of blocks allocated before, as if this had been the last one.
        let serial = (self.stats.freed + self.stats.live).wrapping_sub(1) as u32;
        let block = self.slab.at_mut(out.id);
        (block.state, block.requested, block.serial) = (Is::Live, out.requested, serial);
    }

    /// Frees a block that a cache had borrowed, after the same work as before.
    fn is_ready_again(&mut self, id: Id) {
        self.slab.at_mut(id).for_all = false;
        self.insert(id);
    }

    /// Frees to the pool a block that was freed in a thread cache. It joins the open fence. That
    /// fence was also open when the block was freed, because all caches are flushed before a fence
    /// is closed.
    fn joins_fence(&mut self, id: Id, queue: u32) {
        let fence = self.queues.join(queue);
        let context = self.queues.get(queue).map(|queue| queue.context);
        let tick = self.tick;
        let block = self.slab.at_mut(id);
        (block.queue, block.fence, block.tick) = (queue, fence, tick);
        (block.context, block.for_all) = (context.unwrap_or(block.context), false);
        let (size, small) = (block.size, is_small(block.size));
        let kept = self.queues.at(queue).is_some_and(|at| match at.ordered {
            true => at.keep(&mut self.slab, id, size, small),
            false => at.keep_last(&mut self.slab, id, size, small),
        });
        match kept {
            true => self.queues.holds(queue),
            false => self.insert(id),
        }
    }
}
