//! State that the pool's lock protects, and how blocks are allocated and freed in it. Nothing here
//! calls the driver.

use super::backing::space::{SMALL, Space};
use super::block::SHARED;
use super::block::{Block, ByAddress, Id, Slab, State as Is};
use super::stream_queues::StreamQueues;
use super::types::{Backing, Settings};
use crate::captures::Captures;
use crate::handles::Context;
use crate::handles::Stream;
use crate::rules;
use crate::size_class::{self, GRANULE};
use crate::stats::Stats;
use crate::types::Source;
use crate::types::{FreeError, Freed, Grant, Stamp};

/// Maximum number of other queues that a request searches before the pool queries fences.
const NEAR: u32 = 32;

/// Large blocks begin at multiples of this many bytes: a DMA-BUF consists of host pages.
const HOST_PAGE: u64 = 4096;

#[inline(always)]
pub(super) fn is_small(bytes: u64) -> bool {
    bytes <= SMALL
}

impl Backing {
    #[inline(always)]
    pub(super) fn is_pages(self) -> bool {
        matches!(self, Backing::Pages)
    }
}

/// Size in bytes of the block for a request of `bytes` bytes, in pages or as a driver allocation.
#[inline(always)]
pub(super) fn block_bytes(is_pages: bool, bytes: u64) -> u64 {
    if !is_pages {
        return size_class::block_bytes(bytes);
    }
    let unit = if is_small(bytes) { GRANULE } else { HOST_PAGE };
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes)
}

pub(super) struct State<E> {
    /// Ordinal of the pool's device.
    pub device: i32,
    pub settings: Settings,
    pub slab: Slab,
    /// Blocks of every state by their first address.
    pub map: ByAddress<Id>,
    pub queues: StreamQueues<E>,
    pub space: Space,
    pub captures: Captures,
    pub stats: Stats,
    /// Numbers of the queues at which the next looks begin: for complete fences, and for queues to
    /// end.
    pub next_look: u32,
    pub next_end: u32,
    /// The background thread's clock, in ticks.
    pub tick: u32,
    /// Stamp of the latest free.
    pub latest: Stamp,
    /// Value of [`Stats::freed_bytes`] when the pool last gave back all its free memory. While
    /// little is freed after that, memory counts as being filled for the first time.
    pub calm: u64,
    /// Freed blocks that were exported from the process: they are given back to the driver, not
    /// reused.
    pub exported: Vec<Id>,
    /// True while a request may take a much larger block.
    pub is_loose: bool,
    /// Addresses of the driver allocations that are being given back to the driver.
    pub leaving: Vec<u64>,
    /// Number of times that the pool forgot all its blocks, with their numbers.
    pub cleared: u32,
    /// True while a piece is being given back to the driver.
    pub tells: bool,
    /// Thread caches, one bit each, that may have blocks or counts to report.
    pub in_caches: u64,
    /// Requests that the thread caches served since the last tick, as far as reported.
    pub served: u64,
}

impl<E: Copy> State<E> {
    pub fn new(device: i32, settings: Settings) -> Self {
        State {
            device,
            settings,
            slab: Slab::new(),
            map: ByAddress::default(),
            queues: StreamQueues::new(),
            space: Space::new(),
            captures: Captures::default(),
            stats: Stats::default(),
            next_look: 0,
            next_end: 0,
            tick: 0,
            latest: Stamp::default(),
            calm: 0,
            exported: Vec::new(),
            is_loose: false,
            leaving: Vec::new(),
            cleared: 0,
            tells: false,
            in_caches: 0,
            served: 0,
        }
    }

    /// Bytes of the block for a request.
    #[inline(always)]
    pub fn block_bytes(&self, bytes: u64) -> u64 {
        block_bytes(self.settings.backing.is_pages(), bytes)
    }

    /// Takes a block that the queue may use without a wait: one of exactly this size, or else the
    /// best fit. `all` as in [`State::take`].
    #[inline(always)]
    pub fn take_any(&mut self, queue: u32, bytes: u64, all: bool) -> Option<Grant> {
        if let Some(grant) = self.take_exact(queue, bytes) {
            return Some(grant);
        }
        self.take(queue, bytes, all)
    }

    /// Takes a block of exactly this size that was freed on the same queue. `None` if the queue is
    /// not ordered.
    #[inline(always)]
    pub fn take_exact(&mut self, queue: u32, bytes: u64) -> Option<Grant> {
        let need = self.block_bytes(bytes);
        let own = self.queues.at(queue)?;
        let id = own.take(&mut self.slab, need, is_small(need))?;
        Some(self.grant(id, bytes, Source::Hit))
    }

    /// Takes the block of exactly this size that was freed first on an unordered queue, if later
    /// work may use it.
    fn take_first(&mut self, queue: u32, bytes: u64) -> Option<Grant> {
        let need = self.block_bytes(bytes);
        let own = self.queues.at(queue)?;
        let id = own.take_first(&mut self.slab, queue, need, is_small(need))?;
        self.goes_to(id, queue);
        Some(self.grant(id, bytes, Source::Hit))
    }

    /// Takes the best block that the queue may use without a wait. Searches at most [`NEAR`] other
    /// queues, or every queue if `all`.
    pub fn take(&mut self, queue: u32, bytes: u64, all: bool) -> Option<Grant> {
        if !self.queues.get(queue)?.ordered {
            // Before the pool gets memory for the request: all memory held so far was for streams.
            self.shares();
            let first = self.take_first(queue, bytes);
            if first.is_some() {
                return first;
            }
        }
        let need = self.block_bytes(bytes);
        let some = if all { u32::MAX } else { NEAR };
        // Small blocks are merged only if no other block fits. Large blocks are merged at once,
        // because they fragment memory: twice as much of it moves otherwise, in replays of
        // recordings.
        let mut found = None;
        if is_small(need) {
            found = self.best(queue, need, some);
        }
        let id = found.or_else(|| {
            self.merge_of(queue, is_small(need), all);
            if !self.queues.holds_alone(queue) {
                self.merge(is_small(need), some, all);
            }
            self.best(queue, need, some)
        })?;
        self.claim(id, queue, need);
        Some(self.grant(id, bytes, Source::Hit))
    }

    /// Free blocks of a queue in one part of the addresses, of this size class or a higher one.
    pub fn free_of(&mut self, queue: u32, small: bool, class: usize) -> Vec<Id> {
        let bins = self.queues.get(queue).and_then(|queue| queue.bins(small));
        bins.map_or_else(Vec::new, |bins| bins.at_least(&self.slab, class))
    }

    /// Returns the best fit among the queue's own free blocks. If none fits, returns the best fit
    /// that it may use from at most `others` other queues.
    pub fn best(&mut self, queue: u32, need: u64, others: u32) -> Option<Id> {
        let small = self.is_small(need);
        let most = self.largest_for(need);
        let fits = |slab: &Slab, id: &Id| slab.at(*id).size <= most;
        let own = self.queues.at(queue)?;
        let ordered = own.ordered;
        if let Some(id) = own.bins(small).and_then(|b| b.best(&self.slab, need))
            && fits(&self.slab, &id)
            && (rules::may_use_unseen(ordered) || self.may_use(queue, id))
        {
            return Some(id);
        }
        if self.queues.holds_alone(queue) {
            return None;
        }
        let mut best: Option<(u64, Id)> = None;
        let mut at = SHARED;
        for _ in 0..others {
            let Some(other) = self.queues.holder(at) else {
                break;
            };
            at = other + 1;
            let bins = self.queues.get(other).and_then(|other| other.bins(small));
            let found = bins.and_then(|bins| bins.best(&self.slab, need));
            let Some(id) = found.filter(|id| fits(&self.slab, id)) else {
                continue;
            };
            let size = self.slab.at(id).size;
            if self.may_use(queue, id) && best.is_none_or(|(least, _)| size < least) {
                best = Some((size, id));
            }
        }
        best.map(|(_, id)| id)
    }

    /// True if the queue's later work comes after all work that used the block.
    pub fn may_use(&self, queue: u32, id: Id) -> bool {
        let block = self.slab.at(id);
        self.queues.is_usable(queue, block.queue, block.fence)
    }

    /// True if all work that used the block is known to be complete.
    pub fn is_complete(&self, id: Id) -> bool {
        let block = self.slab.at(id);
        self.queues.is_complete(block.queue, block.fence)
    }

    /// Takes a free block as [`State::reserve_part`] does, and assigns it to a queue.
    pub fn claim(&mut self, id: Id, queue: u32, need: u64) {
        self.reserve_part(id, need);
        self.goes_to(id, queue);
    }

    /// Takes the first `need` bytes of a free block out of its bin, so that no other request finds
    /// them. A driver allocation is taken whole.
    #[inline(always)]
    pub fn reserve_part(&mut self, id: Id, need: u64) {
        self.unlist(id);
        if self.settings.backing.is_pages() {
            self.cut(id, need, |state, rest| state.list(rest));
        }
    }

    /// Assigns a block to the queue on which it is about to be allocated.
    fn goes_to(&mut self, id: Id, queue: u32) {
        let to = self.queues.get(queue);
        let (ordered, context) = to.map_or((true, Context(0)), |to| (to.ordered, to.context));
        let block = self.slab.at_mut(id);
        (block.queue, block.context, block.for_all) = (queue, context, !ordered);
        if !ordered {
            self.shares();
        }
    }

    /// Begins to count `cudaMalloc` apart in a pool of pages. A pool of driver allocations serves
    /// nothing else.
    #[inline(always)]
    fn shares(&mut self) {
        if self.stats.shared.is_none() && self.settings.backing.is_pages() {
            self.stats.share();
        }
    }

    /// Queue that a freed block joins, if it was allocated for all streams of the context `made`.
    /// This is `queue`, the queue of the free, if it belongs to `made`. Otherwise it is the queue
    /// of all streams of `made`, because a fence of another context does not cover their work.
    #[inline(always)]
    fn queue_of_free(&mut self, made: Context, queue: u32) -> u32 {
        match self.queues.get(queue) {
            Some(at) if at.context == made => queue,
            _ => self.queue_of_all(made),
        }
    }

    #[cold]
    fn queue_of_all(&mut self, context: Context) -> u32 {
        self.queues.of(Stream::all_of(context))
    }

    /// Cuts a block that is in no bin after `need` bytes, and passes the other part to `rest`.
    pub fn cut(&mut self, id: Id, need: u64, rest: impl FnOnce(&mut Self, Id)) {
        if let Some(new) = self.slab.cut(id, need) {
            self.put(self.slab.at(new).address, new);
            rest(self, new);
        }
    }

    #[inline(always)]
    fn grant(&mut self, id: Id, bytes: u64, source: Source) -> Grant {
        let group = self.captures.group();
        let block = self.slab.at_mut(id);
        block.state = Is::Live;
        // Number of blocks allocated before.
        block.serial = (self.stats.freed + self.stats.live) as u32;
        block.requested = bytes;
        block.group = group;
        let for_all = block.for_all;
        let grant = Grant {
            address: block.address,
            requested: bytes,
            size: block.size,
            source,
            after: self.latest,
            number: id,
        };
        self.stats.granted(&grant);
        if self.stats.shared.is_some() {
            self.stats.granted_shared(&grant, for_all);
        }
        grant
    }

    /// Allocates a block that was made for a request, on a queue.
    pub fn grown(&mut self, id: Id, queue: u32, bytes: u64, source: Source) -> Grant {
        self.goes_to(id, queue);
        self.grant(id, bytes, source)
    }

    /// Frees a block on a queue. `keeps` is called if a thread cache may keep the block, and
    /// returns true if one does. `seen` is called before the block can be allocated again.
    #[inline(always)]
    pub fn free<X, S: Into<Stamp>>(
        &mut self,
        id: Id,
        queue: u32,
        keeps: impl FnOnce(&mut Slab, Id, Stamp) -> bool,
        seen: impl FnOnce(&Freed) -> S,
    ) -> Result<(), FreeError<X>> {
        let tick = self.tick;
        let block = self.slab.at(id);
        if block.state != Is::Live {
            return Err(FreeError::NotLive);
        }
        let queue = if block.for_all {
            self.queue_of_free(block.context, queue)
        } else {
            queue
        };
        let block = self.slab.at_mut(id);
        let (address, size, requested) = (block.address, block.size, block.requested);
        let (group, for_all, is_exported) = (block.group, block.for_all, block.exported);
        let Some(to) = self.queues.at(queue) else {
            return Err(FreeError::Unknown);
        };
        let now = seen(&Freed {
            address,
            requested,
            size,
            device: self.device,
            for_all,
            number: id,
        });
        self.latest = self.latest.max(now.into());
        block.tick = tick;
        (block.queue, block.context, block.for_all) = (queue, to.context, false);
        let (fence, is_first) = to.fences.join();
        let is_known = to.holds;
        block.fence = fence;
        self.stats.freed(size, requested);
        if for_all {
            self.stats.freed_for_all(size, requested);
        }
        if self.captures.quarantine(id, group) {
            self.slab.at_mut(id).state = Is::Quarantined;
            self.stats.quarantined += size;
        } else if rules::must_release(is_exported) {
            self.slab.at_mut(id).state = Is::Busy;
            self.exported.push(id);
        } else if group == 0 && !for_all && keeps(&mut self.slab, id, self.latest) {
            // The block joins a fence again when the cache is flushed.
        } else if !match to.ordered {
            true => to.keep(&mut self.slab, id, size, is_small(size)),
            false => to.keep_last(&mut self.slab, id, size, is_small(size)),
        } {
            self.insert(id);
        } else if !is_known {
            self.queues.holds(queue);
        }
        if is_first {
            self.queues.pends(queue);
        }
        Ok(())
    }

    /// Frees quarantined blocks that one set of captures no longer holds, unless another set does.
    pub fn return_blocks(&mut self, ids: Vec<Id>) {
        for id in ids {
            let block = self.slab.at(id);
            let group = block.group;
            if block.state == Is::Quarantined && !self.captures.hold_back(id, group) {
                self.return_block(id);
            }
        }
    }

    /// Frees the quarantined blocks that the driver would have freed at once, because memory is
    /// short.
    pub fn give_up(&mut self) {
        if self.stats.quarantined == 0 {
            return;
        }
        for id in self.captures.give_up() {
            if self.slab.at(id).state == Is::Quarantined {
                self.stats.given_up += 1;
                self.return_block(id);
            }
        }
    }

    fn return_block(&mut self, id: Id) {
        let block = self.slab.at(id);
        let now = || Some(self.queues.get(block.queue)?.context);
        let context = rules::freed_in(block.context, now);
        // The graph's last launch may still run, on any stream of the context.
        let all = self.behind_all_of(context);
        let block = self.slab.at_mut(id);
        block.group = 0;
        (block.queue, block.fence) = rules::after_graph(all, (block.queue, block.fence));
        self.stats.quarantined = self.stats.quarantined.saturating_sub(block.size);
        if rules::must_release(block.exported) {
            block.state = Is::Busy;
            return self.exported.push(id);
        }
        self.insert(id);
    }

    /// The block that begins at an address.
    #[inline(always)]
    pub fn beginning(&self, address: u64) -> Option<Id> {
        self.map.get(&address).copied()
    }

    /// The block that contains an address.
    pub fn find(&self, address: u64) -> Option<Id> {
        if let Some(id) = self.beginning(address) {
            return Some(id);
        }
        let first = self.space.first(address)?;
        self.slab.containing(first, address)
    }

    /// Adds a block that is in no bin and has no adjacent blocks. `None` if there are too many
    /// blocks.
    pub fn add(&mut self, block: Block) -> Option<Id> {
        let address = block.address;
        let id = self.slab.insert(block)?;
        self.put(address, id);
        Some(id)
    }

    /// Records that a block begins at an address.
    fn put(&mut self, address: u64, id: Id) {
        self.map.insert(address, id);
    }

    /// Records that no block begins at an address any more.
    pub fn gone(&mut self, address: u64) {
        self.map.remove(&address);
    }
}
