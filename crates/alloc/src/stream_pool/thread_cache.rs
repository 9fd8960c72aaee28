//! One thread's cache of blocks (`thread_caches.rs`).

use super::block::{ByAddress, Id, NIL, Slab, State as Is};
use super::exact_fit::{SLOTS, slot};
use super::state::{State, is_small};
use crate::handles::{Address, Stream};
use crate::per_thread::own;
use crate::rules;
use crate::stats::Delta;
use crate::types::{Freed, Grant, Source, Stamp};

/// Blocks of one size in a cache, at most.
const DEPTH: usize = 16;
/// Bytes of a block in a cache at most.
const LARGEST: u64 = 64 << 20;
/// Frees without a request between them, after which a cache keeps no more: such a thread frees what others ask for.
const UNASKED: u32 = 64;
/// Frees in a row on other streams than the cache's, after which it changes over to theirs.
const PATIENCE: u32 = 64;

/// One thread's cache.
#[derive(Default)]
pub(super) struct Cache {
    /// All its blocks were freed on this stream.
    stream: Option<Stream>,
    /// The stream of the thread's latest request that was not on the cache's.
    asked: Option<Stream>,
    /// Blocks that came into it since the thread's latest request.
    unasked: u32,
    /// Frees in a row on other streams.
    strange: u32,
    /// Made when they are needed first.
    at_hand: Option<Box<[Slot; SLOTS]>>,
    count: usize,
    out: ByAddress<Out>,
    /// The latest free.
    latest: Stamp,
    delta: Delta,
}

/// Blocks of one size at hand; the one that was freed last is last.
#[derive(Clone, Copy)]
struct Slot {
    size: u64,
    count: usize,
    blocks: [(Id, Address); DEPTH],
}

/// A block in the caller's hands.
#[derive(Clone, Copy)]
struct Out {
    id: Id,
    size: u64,
    requested: u64,
}

impl Cache {
    #[inline(always)]
    fn slot(&mut self, size: u64) -> Option<&mut Slot> {
        self.at_hand.as_mut()?.get_mut(slot(size))
    }

    #[inline(always)]
    pub fn take(&mut self, stream: Stream, bytes: u64, need: u64) -> Option<Grant> {
        self.unasked = 0;
        let is_own = self.stream == Some(stream);
        if !is_own && stream.is_ordered() {
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

    #[inline(always)]
    pub fn free<S: Into<Stamp>, F: FnOnce(&Freed) -> S>(
        &mut self,
        (stream, device): (Stream, i32),
        address: Address,
        seen: F,
    ) -> Result<(), F> {
        if self.stream != Some(stream) {
            return Err(seen);
        }
        let Some(out) = self.out.remove(&address) else {
            return Err(seen);
        };
        let (id, size, requested) = (out.id, out.size, out.requested);
        if !self.put(id, address, size) {
            self.out.insert(address, out);
            return Err(seen);
        }
        let now = seen(&Freed {
            address,
            requested,
            size,
            device,
            for_all: false,
            number: id,
        });
        self.latest = self.latest.max(now.into());
        self.delta.freed(size, requested);
        self.strange = 0;
        Ok(())
    }

    /// A block is at hand from here on; false if there is no place for it.
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

    /// Keeps a block that comes back to the pool; false if there is no place for it.
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

    /// Whether it serves a stream. It changes over to one that its thread asks on once it has no block of another, or after
    /// [`PATIENCE`] frees.
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
        self.call_in(state);
        self.strange = 0;
        self.stream = Some(stream);
        self.at_hand.get_or_insert_with(|| {
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

    /// Tells the pool what happened.
    #[inline(always)]
    pub fn report<E: Copy>(&mut self, state: &mut State<E>) {
        if !self.delta.is_none() {
            let delta = std::mem::take(&mut self.delta);
            state.served += delta.granted;
            state.stats.happened(&delta);
        }
    }

    /// Gives the pool the block at an address, if it is in its caller's hands.
    pub fn take_out<E: Copy>(&mut self, state: &mut State<E>, address: Address) {
        if let Some(out) = self.out.remove(&address) {
            self.report(state);
            state.latest = state.latest.max(self.latest);
            state.is_the_pools(out);
        }
    }

    /// Gives the pool all its blocks, those in the callers' hands, too, and tells it what happened.
    pub fn call_in<E: Copy>(&mut self, state: &mut State<E>) {
        self.report(state);
        state.latest = state.latest.max(self.latest);
        let Some(stream) = self.stream else { return };
        for (_, out) in self.out.drain() {
            state.is_the_pools(out);
        }
        if self.count > 0 {
            let queue = state.queues.of(stream);
            for slot in self.at_hand.iter_mut().flat_map(|slots| slots.iter_mut()) {
                for (id, _) in slot.blocks.iter().take(slot.count) {
                    state.comes_back(*id, queue);
                }
                slot.count = 0;
            }
            self.count = 0;
        }
    }
}

impl<E: Copy> State<E> {
    /// A block in a caller's hands was in a thread cache.
    fn is_the_pools(&mut self, out: Out) {
        // How many were handed out before, as if it had been the last one.
        let serial = (self.stats.freed + self.stats.live).wrapping_sub(1) as u32;
        let block = self.slab.at_mut(out.id);
        (block.state, block.requested, block.serial) = (Is::Live, out.requested, serial);
    }

    /// A block at hand in a thread cache comes back, and joins the open fence. That fence was open when the block was freed, too: before a
    /// fence is closed, all blocks in caches come back.
    fn comes_back(&mut self, id: Id, queue: u32) {
        let fence = self.queues.join(queue);
        let context = self.queues.get(queue).map(|queue| queue.context);
        let tick = self.tick;
        let block = self.slab.at_mut(id);
        (block.queue, block.fence, block.tick) = (queue, fence, tick);
        block.context = context.unwrap_or(block.context);
        let (size, small) = (block.size, is_small(block.size));
        let kept = self
            .queues
            .at(queue)
            .is_some_and(|queue| queue.keep(&mut self.slab, id, size, small));
        match kept {
            true => self.queues.holds(queue),
            false => self.insert(id),
        }
    }
}
