//! The thread cache: for each thread, blocks at hand and blocks that came back, so that a pair that hits
//! takes no lock that others want.
//!
//! A *shard* belongs to one thread (to several, once there are more than [`PARTS`]). It borrows ready
//! blocks of one context from the pool, hands them out and takes them back; blocks that came back wait
//! in it until the next visit to the pool, where they join the open fence. To the pool such a block is
//! *in a thread cache*, whether it is at hand, in the caller's hands, or back. A block that joins
//! its fence late only waits longer. Code that needs every block flushes the caches first.
//!
//! Locks are taken in one order: the pool's, then a shard's.

use super::block::{Id, State as BlockState};
use super::state::State;
use crate::handles::{Address, Context};
use crate::per_thread::{PARTS, Part, own};
use crate::types::{Freed, Grant, Source, Stamp};
use rustc_hash::FxHashMap;

/// Sizes that a shard has blocks at hand of.
const SIZES: usize = 32;
/// Blocks of one size that are borrowed at once, at most, and their bytes.
const LOAN: usize = 32;
const LOAN_BYTES: u64 = 64 << 20;
/// Blocks that came back and wait, at most.
const BACK: usize = 32;
/// Visits in a row that found the shard bound to another context, after which it changes over.
const PATIENCE: u32 = 64;

/// A block at hand.
struct Ready {
    id: Id,
    address: Address,
    size: u64,
}

/// A block in the caller's hands.
#[derive(Clone, Copy)]
struct Out {
    id: Id,
    size: u64,
    requested: u64,
}

/// Blocks of one size.
#[derive(Default)]
struct Size {
    /// What the pool would get from the driver for a request: requests alike in this share blocks.
    bytes: u64,
    ready: Vec<Ready>,
}

/// What happened in a shard since the pool last heard of it.
#[derive(Default)]
struct Delta {
    allocated: i64,
    requested: i64,
    live: i64,
    hits: u64,
    freed: u64,
}

/// One thread's part.
struct Shard {
    /// Nothing is served while a stream captures.
    closed: bool,
    context: Context,
    device: i32,
    /// The arena of the context; 0: not bound to any.
    serial: u64,
    strange: u32,
    sizes: [Size; SIZES],
    out: FxHashMap<Address, Out>,
    back: Vec<Id>,
    /// The latest free.
    latest: Stamp,
    delta: Delta,
}

impl Shard {
    fn new() -> Self {
        Shard {
            closed: false,
            context: Context(0),
            device: 0,
            serial: 0,
            strange: 0,
            sizes: Default::default(),
            out: FxHashMap::default(),
            back: Vec::new(),
            latest: Stamp::default(),
            delta: Delta::default(),
        }
    }

    #[inline]
    fn size(&mut self, bytes: u64) -> &mut Size {
        // Fibonacci hashing: the upper bits of the product depend on all bits of the size.
        let mixed = bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &mut self.sizes[mixed as usize % SIZES]
    }
}

/// The thread cache of a pool.
pub(super) struct ThreadCaches {
    shards: Box<[Part<Shard>]>,
}

/// How much goes back to the pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    /// What happened, for the statistics.
    Figures,
    /// And what came back.
    Back,
    /// And what is at hand.
    Idle,
    /// And what is in the callers' hands.
    All,
}

impl ThreadCaches {
    pub fn new() -> Self {
        ThreadCaches {
            shards: (0..PARTS).map(|_| Part::new(Shard::new())).collect(),
        }
    }

    /// A block at hand. `size`: what the pool would get from the driver for the request.
    #[inline(always)]
    pub fn take(&self, context: Context, bytes: u64, size: u64) -> Option<Grant> {
        let mut shard = self.shards.get(own())?.lock();
        if shard.closed || shard.context != context {
            return None;
        }
        let kind = shard.size(size);
        if kind.bytes != size {
            return None;
        }
        let ready = kind.ready.pop()?;
        shard.hand_out(ready.id, ready.address, ready.size, bytes);
        shard.delta.allocated += ready.size as i64;
        shard.delta.requested += bytes as i64;
        shard.delta.live += 1;
        shard.delta.hits += 1;
        Some(Grant {
            address: ready.address,
            requested: bytes,
            size: ready.size,
            source: Source::Hit,
            after: shard.latest,
            number: ready.id,
        })
    }

    /// Takes back what this thread was handed out here. An error if the pool has to: `seen` again.
    #[inline(always)]
    pub fn free<S: Into<Stamp>, F: FnOnce(&Freed) -> S>(
        &self,
        address: Address,
        seen: F,
    ) -> Result<(), F> {
        let Some(line) = self.shards.get(own()) else {
            return Err(seen);
        };
        let mut shard = line.lock();
        if shard.back.len() >= BACK {
            return Err(seen);
        }
        let Some(out) = shard.out.remove(&address) else {
            return Err(seen);
        };
        shard.latest = seen(&Freed {
            address,
            requested: out.requested,
            size: out.size,
            device: shard.device,
            for_all: true,
            number: out.id,
        })
        .into();
        shard.back.push(out.id);
        shard.delta.allocated -= out.size as i64;
        shard.delta.requested -= out.requested as i64;
        shard.delta.live -= 1;
        shard.delta.freed += 1;
        Ok(())
    }

    /// Takes over a block that the pool just handed out, so that it comes back here, and borrows more
    /// of its size. `size` as for [`ThreadCaches::take`].
    pub fn adopt<E: Copy>(&self, state: &mut State<E>, grant: &Grant, size: u64) {
        let own = own();
        let Some(line) = self.shards.get(own) else {
            return;
        };
        let Some(&id) = state.map.get(&grant.address) else {
            return;
        };
        let block = state.slab.at(id);
        let index = block.arena as usize;
        if block.state != BlockState::Live || block.group != 0 || block.exported {
            return;
        }
        let Some(Some(arena)) = state.arenas.get(index) else {
            return;
        };
        let (context, serial, device) = (arena.context, arena.serial, arena.device);
        let Some(ordinal) = state.devices.get(device).map(|device| device.ordinal) else {
            return;
        };
        let mut shard = line.lock();
        if shard.closed {
            return;
        }
        if shard.serial != serial {
            shard.strange += 1;
            if shard.serial != 0 && shard.strange < PATIENCE {
                return;
            }
            shard.settle(state, Flush::All);
            (shard.context, shard.device, shard.serial) = (context, ordinal, serial);
        }
        shard.strange = 0;
        state.in_caches |= 1 << own;
        state.slab.at_mut(id).state = BlockState::InThreadCache;
        state.slab.at_mut(id).shard = own as u16;
        shard.hand_out(id, grant.address, grant.size, grant.requested);
        if grant.source != Source::Grown {
            shard.borrow(state, id, own, size);
        }
    }

    /// Takes a block in a thread cache back under the pool's lock: it counts as handed out by the pool itself from
    /// then on. False if the caller does not have it.
    pub fn reclaim<E: Copy>(&self, state: &mut State<E>, address: Address, id: Id) -> bool {
        let shard = usize::from(state.slab.at(id).shard);
        let Some(line) = self.shards.get(shard) else {
            return false;
        };
        let mut shard = line.lock();
        let Some(out) = shard.out.remove(&address) else {
            return false;
        };
        shard.report(state);
        let block = state.slab.at_mut(id);
        block.state = BlockState::Live;
        block.requested = out.requested;
        true
    }

    /// Bytes that were asked for with a block in a thread cache, if it is in the caller's hands.
    pub fn requested<E: Copy>(&self, state: &State<E>, id: Id) -> Option<u64> {
        let block = state.slab.at(id);
        let line = self.shards.get(usize::from(block.shard))?;
        let shard = line.lock();
        shard.out.get(&block.address).map(|out| out.requested)
    }

    /// Flushes what the calling thread's shard has back.
    pub fn flush_own<E: Copy>(&self, state: &mut State<E>) {
        if let Some(line) = self.shards.get(own()) {
            line.lock().settle(state, Flush::Back);
        }
    }

    /// Flushes what all shards have.
    pub fn flush_caches<E: Copy>(&self, state: &mut State<E>, what: Flush) {
        let mut in_caches = state.in_caches;
        while in_caches != 0 {
            let shard = in_caches.trailing_zeros();
            in_caches &= in_caches - 1;
            if let Some(line) = self.shards.get(shard as usize) {
                line.lock().settle(state, what);
                if what == Flush::All {
                    state.in_caches &= !(1 << shard);
                }
            }
        }
    }

    /// Calls everything in, and serves nothing until it is opened again.
    pub fn close<E: Copy>(&self, state: &mut State<E>) {
        for line in &self.shards {
            let mut shard = line.lock();
            shard.settle(state, Flush::All);
            shard.closed = true;
        }
        state.in_caches = 0;
    }

    /// Serves again.
    pub fn open(&self) {
        for line in &self.shards {
            line.lock().closed = false;
        }
    }
}

impl Shard {
    #[inline]
    fn hand_out(&mut self, id: Id, address: Address, size: u64, requested: u64) {
        let out = Out {
            id,
            size,
            requested,
        };
        self.out.insert(address, out);
    }

    /// Borrows ready blocks like one that was handed out, for requests of this size.
    fn borrow<E: Copy>(&mut self, state: &mut State<E>, like: Id, own: usize, size: u64) {
        let kind = self.size(size);
        if kind.bytes != size {
            give_back(state, kind.ready.drain(..));
            kind.bytes = size;
        }
        let most = LOAN.min((LOAN_BYTES / size.max(1)) as usize);
        let wanted = most.saturating_sub(kind.ready.len());
        let State { slab, arenas, .. } = state;
        let index = slab.at(like).arena as usize;
        let Some(Some(arena)) = arenas.get_mut(index) else {
            return;
        };
        arena
            .cached
            .take_alike(slab, like, size, wanted, |slab, id| {
                let block = slab.at_mut(id);
                block.state = BlockState::InThreadCache;
                block.shard = own as u16;
                block.group = 0;
                kind.ready.push(Ready {
                    id,
                    address: block.address,
                    size: block.size,
                });
            });
    }

    /// Tells the pool what happened.
    fn report<E: Copy>(&mut self, state: &mut State<E>) {
        if self.serial == 0 {
            return;
        }
        let delta = std::mem::take(&mut self.delta);
        let Some(index) = state.index(self.serial) else {
            return;
        };
        let Some(Some(arena)) = state.arenas.get_mut(index) else {
            return;
        };
        match u64::try_from(delta.allocated) {
            Ok(more) => arena.allocated(more),
            Err(_) => {
                let less = delta.allocated.unsigned_abs();
                arena.allocated = arena.allocated.saturating_sub(less);
            }
        }
        if let Some(device) = state.devices.get_mut(arena.device) {
            let stats = &mut device.stats;
            stats.allocated = stats.allocated.saturating_add_signed(delta.allocated);
            stats.requested = stats.requested.saturating_add_signed(delta.requested);
            stats.live = stats.live.saturating_add_signed(delta.live);
            stats.hits += delta.hits;
            stats.freed += delta.freed;
            stats.peak_allocated = stats.peak_allocated.max(stats.allocated);
            stats.peak_requested = stats.peak_requested.max(stats.requested);
        }
    }

    /// Gives the pool back what is flushed.
    fn settle<E: Copy>(&mut self, state: &mut State<E>, what: Flush) {
        if self.serial == 0 {
            return;
        }
        self.report(state);
        if what == Flush::Figures {
            return;
        }
        state.latest = state.latest.max(self.latest);
        for id in self.back.drain(..) {
            let block = state.slab.at_mut(id);
            block.state = BlockState::Cached;
            block.tick = state.tick;
            let index = block.arena as usize;
            if let Some(Some(arena)) = state.arenas.get_mut(index) {
                state.slab.at_mut(id).fence = arena.fences.join();
                arena.cached.insert(&mut state.slab, id);
            }
        }
        if what == Flush::Back {
            return;
        }
        for size in &mut self.sizes {
            // The list's own memory goes, too: the shard's thread may have ended.
            give_back(state, std::mem::take(size).ready);
        }
        if what == Flush::All {
            for (_, out) in self.out.drain() {
                let block = state.slab.at_mut(out.id);
                block.state = BlockState::Live;
                block.requested = out.requested;
            }
            self.serial = 0;
            self.context = Context(0);
        }
    }
}

/// Ready blocks that were not taken: they are the first to be given back to the driver.
fn give_back<E: Copy>(state: &mut State<E>, ready: impl IntoIterator<Item = Ready>) {
    for Ready { id, .. } in ready {
        let block = state.slab.at_mut(id);
        block.state = BlockState::Cached;
        let index = block.arena as usize;
        if let Some(Some(arena)) = state.arenas.get_mut(index) {
            arena.cached.insert_ready(&mut state.slab, id);
        }
    }
}
