//! Pools of driver allocations in one context ([`Backing::Whole`]). An
//! allocation serves one block at a time, and is given back to the driver as a whole.

use super::mapping::Mode;
use super::space::Piece;
use crate::driver::{Driver, Home};
use crate::handles::Stream;
use crate::pool::block::{Block, Id, State as Is};
use crate::pool::miss_state::{MissGuard, unlocked};
use crate::pool::serve::Pool;
use crate::pool::state::State;
use crate::pool::types::Backing;
use crate::size_class::{PAGE, page_bytes};
use crate::types::{Grant, PATIENCE, Source};
use std::sync::atomic::Ordering;

/// Percent of its budget that a pool may hold before it gives free allocations back, and the bytes
/// allowed in any case (`FLOOR`). Higher values gained little on recordings.
const SHARE: u64 = 150;
const FLOOR: u64 = 256 << 20;
/// Divisor of a request for the bytes by which its block may exceed it. `LOOSE` applies where the
/// pool would otherwise give memory back.
const SLACK: u64 = 8;
const LOOSE: u64 = 2;
/// Divisor of a device's memory for the part left free for direct users of the driver, and the
/// minimum of this part in bytes.
const MARGIN_PART: u64 = 100;
const MARGIN_FLOOR: u64 = 256 << 20;

impl<D: Driver> Pool<D> {
    /// Gets a driver allocation for a request. A pool that would hold too much first tries a larger
    /// free block, then gives free allocations back.
    pub(in crate::pool) fn grow_whole(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        home: Home,
        stream: Stream,
        bytes: u64,
        mode: Mode,
    ) -> Result<Grant, D::Error> {
        let state = self.state.lock();
        let (need, excess) = match mode.is_short() {
            true => (page_bytes(bytes), u64::MAX),
            false => {
                let need = state.block_bytes(bytes);
                (need, state.excess(need))
            }
        };
        drop(state);
        if excess > 0 {
            if let Some(grant) = self.take_loosely(driver, misses, stream, bytes) {
                return Ok(grant);
            }
            self.give_back(driver, misses, excess, 0);
        }
        if self.is_beyond(need) {
            return Err(D::OUT_OF_MEMORY);
        }
        let admission = driver.admit(self.device, need).ok_or(D::OUT_OF_MEMORY)?;
        let address = driver.allocate(home, need)?;
        drop(admission);
        let mut state = self.state.lock();
        let queue = state.queues.of(stream);
        let Some(id) = state.allocated(address, need) else {
            drop(state);
            // The driver's answer does not matter: the request fails as out of memory.
            let _ = driver.release(home, address, need);
            return Err(D::OUT_OF_MEMORY);
        };
        state.slab.at_mut(id).queue = queue;
        let grant = state.grown(id, queue, bytes, Source::Grown);
        drop(state);
        if need >= PAGE {
            self.keep_margin(driver, misses);
        }
        Ok(grant)
    }

    /// Takes a block that may exceed the request by more than usual. This is better than to give
    /// memory back and get other memory.
    fn take_loosely(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        stream: Stream,
        bytes: u64,
    ) -> Option<Grant> {
        self.state.lock().is_loose = true;
        let grant = self.take(stream, bytes, true);
        let grant = grant.or_else(|| self.take_ordered(driver, misses, stream, bytes));
        self.state.lock().is_loose = false;
        grant
    }

    /// Gives free allocations back until the device has its margin.
    fn keep_margin(&self, driver: &D, misses: &mut MissGuard<'_, D>) {
        if let Some((free, total)) = driver.memory_info(self.device) {
            let margin = (total / MARGIN_PART).max(MARGIN_FLOOR);
            if free < margin {
                self.give_back(driver, misses, margin - free, 0);
            }
        }
    }

    /// Gives the allocation of a block that is in no bin back to the driver. The pool forgets it
    /// first, because the driver may give its address to another pool or to the program at once.
    /// Returns true if the driver took it.
    pub(in crate::pool) fn end_allocation(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        home: Home,
        id: Id,
    ) -> bool {
        let mut state = self.state.lock();
        let block = state.slab.at(id);
        let (address, bytes, is_exported) = (block.address, block.size, block.exported);
        state.evicted(id, address, Piece::new(0, bytes));
        state.leaving.push(address);
        let cleared = state.cleared;
        drop(state);
        let is_gone = unlocked(misses, || driver.release(home, address, bytes)).is_ok();
        let mut state = self.state.lock();
        state.leaving.retain(|other| *other != address);
        if !is_gone
            && state.cleared == cleared
            && let Some(id) = state.allocated(address, bytes)
        {
            state.slab.at_mut(id).exported = is_exported;
            match is_exported {
                true => state.exported.push(id),
                false => state.insert(id),
            }
        }
        is_gone
    }

    /// True if a block was exported at some time: [`Pool::release_exported`] must follow each free.
    #[inline]
    pub fn has_exported(&self) -> bool {
        self.has_exported.load(Ordering::Relaxed)
    }

    /// Gives the allocations of freed exported blocks back to the driver, after their work. Returns
    /// the bytes given back.
    pub fn release_exported(&self, driver: &D) -> u64 {
        let Some(mut misses) = self.misses.try_lock_for(PATIENCE) else {
            return 0;
        };
        self.end_exported(driver, &mut misses, true)
    }

    /// Does the work of [`Pool::release_exported`] in a miss. Without `waits`, frees only
    /// allocations whose work is known to be complete.
    pub(in crate::pool) fn end_exported(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        waits: bool,
    ) -> u64 {
        let state = self.state.lock();
        let Backing::Whole(home) = state.settings.backing else {
            return 0;
        };
        let exported = state.exported.clone();
        drop(state);
        let mut given = 0;
        for id in exported {
            if waits {
                self.finish(driver, misses, id);
            }
            // During a wait, another thread may have freed it, or its context may have ended.
            let mut state = self.state.lock();
            let at = state.exported.iter().position(|other| *other == id);
            let Some(at) = at.filter(|_| state.is_complete(id)) else {
                continue;
            };
            state.exported.swap_remove(at);
            let bytes = state.slab.at(id).size;
            drop(state);
            if self.end_allocation(driver, misses, home, id) {
                given += bytes;
            }
        }
        given
    }

    /// Takes note that the context of the allocations has ended, and the allocations with it.
    /// Returns the former numbers of bytes allocated and held.
    pub fn home_gone(&self, driver: &D) -> (u64, u64) {
        let _misses = self.misses.lock();
        let mut state = self.state.lock();
        let gone = (state.stats.allocated, state.stats.reserved);
        let events = state.clear();
        drop(state);
        events.into_iter().for_each(|event| driver.retire(event));
        gone
    }

    /// Keeps a block that the program depends on. Natively, the captures with these numbers would
    /// have refused its allocation. Its memory is not used again while one of them can end in a
    /// graph, even if memory is short.
    pub fn keep(&self, address: u64, captures: Vec<u64>) {
        let mut state = self.state.lock();
        if let Some(id) = state.beginning(address) {
            state.captures.keep(id, captures);
        }
    }

    /// Keeps a block that is about to be freed. Natively, the open captures would have refused the
    /// free.
    pub fn keep_freed(&self, address: u64) {
        let mut state = self.state.lock();
        if let Some(id) = state.beginning(address) {
            state.captures.keep_freed(id);
        }
    }
}

impl<E: Copy> State<E> {
    /// Bytes of the largest block that may serve a request for a block of `need` bytes.
    pub fn largest_for(&self, need: u64) -> u64 {
        match self.settings.backing {
            Backing::Pages => u64::MAX,
            Backing::Whole(_) if self.is_loose => need.saturating_add(need / LOOSE),
            Backing::Whole(_) => need.saturating_add(need / SLACK),
        }
    }

    /// Number that orders a queue's free blocks by the time of their last use.
    pub fn last_use(&self, id: Id) -> (u64, u32) {
        let block = self.slab.at(id);
        (block.fence, block.serial)
    }

    /// Adds a driver allocation as a busy block that is in no bin.
    fn allocated(&mut self, address: u64, bytes: u64) -> Option<Id> {
        let id = self.add(Block::new(address, bytes, Is::Busy))?;
        self.space.firsts.insert(address, id);
        let piece = Piece::new(0, bytes);
        self.space.pieces.insert(address, piece);
        self.stats.reserve(bytes);
        self.stats.created += 1;
        Some(id)
    }

    /// Forgets a driver allocation that is whole and in no bin.
    pub fn deallocated(&mut self, id: Id) {
        let address = self.slab.at(id).address;
        self.map.remove(&address);
        self.slab.remove(id);
        self.space.firsts.remove(&address);
        self.space.pieces.remove(&address);
        self.stats.released += 1;
    }

    /// Bytes by which the pool would exceed its limit with `more` bytes more.
    fn excess(&self, more: u64) -> u64 {
        let share = (self.budget(0) / 100 * SHARE).max(FLOOR);
        self.stats
            .reserved
            .saturating_add(more)
            .saturating_sub(share)
    }
}
