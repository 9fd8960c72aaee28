//! Operations of a pool besides allocation, as the program or the background thread requests them.

use super::serve::{Pool, first_threshold};
use super::state::State;
use super::types::{LiveBlock, Settings};
use crate::driver::Driver;
use crate::policy::TICKS_TO_DECAY;
use crate::size_class::PAGE;
use crate::stats::Stats;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl<D: Driver> Pool<D> {
    /// Gives free memory back to the driver until at most `keep` bytes are held, if its work is
    /// known to be complete. Returns the bytes given back.
    pub fn trim(&self, driver: &D, keep: u64) -> u64 {
        let mut misses = self.misses.lock();
        self.refresh(driver);
        let reaped = self.reap(driver, &mut misses);
        let held = self.stats().reserved;
        let given = reaped + self.give_back(driver, &mut misses, held.saturating_sub(keep), 0);
        if keep == 0 {
            let mut state = self.state.lock();
            state.calm = state.stats.freed_bytes;
        }
        given
    }

    /// Trims the memory held for streams as [`Pool::trim`] does. Memory that `cudaMalloc` used
    /// recently stays for it.
    pub fn trim_streams(&self, driver: &D, keep: u64) -> u64 {
        let keep = keep - keep % PAGE;
        let given = self.trim(driver, keep.saturating_add(self.stats().kept_for_all()));
        self.state.lock().stats.trimmed_on_streams(keep);
        given
    }

    /// Gives all free memory back, because memory is short elsewhere. With `waits`, first waits for
    /// the work that still uses it. Gives nothing back if another thread searches for memory in
    /// this pool for longer than `patience`: it may wait for the caller. Returns the bytes given
    /// back.
    pub fn make_room(&self, driver: &D, waits: bool, patience: Duration) -> u64 {
        let Some(mut misses) = self.misses.try_lock_for(patience) else {
            return 0;
        };
        self.refresh(driver);
        if waits {
            self.state.lock().give_up();
            self.finish_all(driver, &mut misses);
        }
        self.reap(driver, &mut misses) + self.give_back(driver, &mut misses, u64::MAX, 0)
    }

    /// Gives back about `bytes` bytes of free memory that no work uses, because another process
    /// lacks memory. Does not wait for work, and waits for other threads in this pool no longer
    /// than `patience`. Returns the bytes given back.
    pub fn give_complete(&self, driver: &D, bytes: u64, patience: Duration) -> u64 {
        let Some(mut misses) = self.misses.try_lock_for(patience) else {
            return 0;
        };
        self.refresh(driver);
        self.reap(driver, &mut misses) + self.give_back(driver, &mut misses, bytes, 0)
    }

    /// Advances the background thread's clock by one tick. Gives back memory that was freed
    /// [`TICKS_TO_DECAY`] ticks ago and not requested since, if its work is complete. Returns the
    /// bytes given back.
    pub fn decay(&self, driver: &D) -> u64 {
        let Some(mut misses) = self.misses.try_lock() else {
            return 0;
        };
        let mut state = self.state.lock();
        self.state.caches.tick(&mut state);
        state.tick = state.tick.wrapping_add(1);
        if state.tick.is_multiple_of(TICKS_TO_DECAY) {
            state.stats.roll();
        }
        drop(state);
        self.refresh(driver);
        let given = self.reap(driver, &mut misses)
            + self.give_back(driver, &mut misses, u64::MAX, TICKS_TO_DECAY);
        self.state.lock().queues.shrink();
        given
    }

    /// True if the pool holds more than it may keep when a stream, event or context is synchronised
    /// (`CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`).
    #[inline]
    pub fn is_above_threshold(&self) -> bool {
        let threshold = self.threshold.load(Ordering::Relaxed);
        // Memory held for streams is counted in whole pages.
        threshold != u64::MAX && self.holds_more_than(threshold - threshold % PAGE) && {
            let stats = self.stats();
            stats.reserved_on_streams() > threshold && stats.reserved > stats.allocated
        }
    }

    fn holds_more_than(&self, bytes: u64) -> bool {
        self.state.lock_without_caches().stats.reserved > bytes
    }

    /// Bytes that the pool keeps at a synchronisation.
    pub fn threshold(&self) -> u64 {
        self.threshold.load(Ordering::Relaxed)
    }

    /// Sets [`Pool::threshold`].
    pub fn set_threshold(&self, bytes: u64) {
        self.threshold.store(bytes, Ordering::Relaxed);
    }

    /// Sets whether a stream may be made to wait for another stream to get its freed memory
    /// (`CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`).
    pub fn set_orders(&self, orders: bool) {
        self.state.lock().settings.orders = orders;
    }

    /// Resets the peak of the bytes held to their present number.
    pub fn reset_peak_reserved(&self) {
        let mut state = self.state.lock();
        state.stats.reset_peak_reserved();
    }

    /// Resets the peak of the bytes requested to their present number.
    pub fn reset_peak_requested(&self) {
        let mut state = self.state.lock();
        state.stats.reset_peak_requested();
    }

    /// Lets these devices, by ordinal, and no others use the pool's pages; its own device always
    /// may. Driver allocations follow the driver's own peer access.
    ///
    /// # Errors
    /// The driver's error; the access to some of the memory may have changed by then.
    pub fn set_access(&self, driver: &D, others: &[i32]) -> Result<(), D::Error> {
        let mut misses = self.misses.lock();
        let mut devices = vec![self.device];
        devices.extend(others.iter().filter(|other| **other != self.device));
        let gone: Vec<i32> = misses
            .devices
            .iter()
            .copied()
            .filter(|device| !devices.contains(device))
            .collect();
        misses.devices = devices;
        if !self.is_pages() {
            return Ok(());
        }
        let state = self.state.lock();
        let pieces: Vec<(u64, u64)> = state
            .space
            .pieces
            .iter()
            .map(|(address, piece)| (*address, piece.bytes))
            .collect();
        drop(state);
        for (address, bytes) in pieces {
            driver.allow(address, bytes, &misses.devices)?;
            driver.forbid(address, bytes, &gone)?;
        }
        Ok(())
    }

    /// Ordinals of the devices that may use the pool's memory; its own is the first.
    pub fn devices(&self) -> Vec<i32> {
        self.misses.lock().devices.clone()
    }

    /// Name of the driver function that refused memory in pieces, and its error. The pool cannot
    /// get new memory then.
    pub fn refusal(&self) -> Option<(&'static str, D::Error)> {
        self.misses.lock().refusal
    }

    /// Gives the addresses of a pool without memory back to the driver. Returns false if the pool
    /// has memory.
    pub fn vacate(&self, driver: &D) -> bool {
        let mut misses = self.misses.lock();
        let mut state = self.state.lock();
        if state.stats.live + state.stats.reserved + state.stats.quarantined > 0 {
            return false;
        }
        let Some((base, bytes)) = misses.reserved.take() else {
            return true;
        };
        let events = state.clear();
        self.range.store(0, Ordering::Release);
        drop(state);
        for event in events {
            driver.retire(event);
        }
        driver.unreserve(base, bytes);
        true
    }

    /// Opens an empty pool again, under other settings with the same kind of memory.
    pub fn reopen(&self, settings: Settings) {
        let mut misses = self.misses.lock();
        misses.devices = vec![self.device];
        misses.refusal = None;
        self.set_threshold(first_threshold(&settings));
        let mut state = self.state.lock();
        state.settings = settings;
        state.stats = Stats::default();
        state.calm = 0;
    }

    /// Takes note that the memory of a block may be registered outside the process. The
    /// registration ends with the free, as natively. A driver allocation is freed with its block.
    /// Pages stay in place while a block lives on them, so that they need no mark.
    pub fn exported(&self, address: u64) {
        let mut state = self.state.lock();
        if let Some(id) = state.find(address).filter(|_| !self.is_pages()) {
            state.slab.at_mut(id).exported = true;
            self.has_exported.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the live block that contains an address.
    pub fn find(&self, address: u64) -> Option<LiveBlock> {
        if !self.owns(address) {
            return None;
        }
        let mut state = self.state.lock_without_caches();
        let id = state.find(address)?;
        self.state.caches.take_out(&mut state, id);
        let block = state.slab.at(id);
        (block.state == super::block::State::Live).then_some(LiveBlock {
            address: block.address,
            requested: block.requested,
            serial: block.serial,
            context: block.context,
            for_all: block.for_all,
        })
    }

    /// Bytes of the largest free block, even if work may still use it.
    pub fn largest_free(&self) -> u64 {
        let mut state = self.state.lock();
        let State { queues, slab, .. } = &mut *state;
        let (mut largest, mut at) = (0, 0);
        while let Some(number) = queues.holder(at) {
            at = number + 1;
            let Some(queue) = queues.get(number) else {
                break;
            };
            for small in [true, false] {
                largest = largest.max(queue.largest(slab, small));
            }
        }
        largest
    }

    /// Returns the counters of the pool.
    pub fn stats(&self) -> Stats {
        self.state.lock().stats
    }

    /// Returns [`Pool::stats`]; `None` while a thread has the lock.
    #[cfg(test)]
    pub(crate) fn peek(&self) -> Option<Stats> {
        Some(self.state.try_lock()?.stats)
    }

    /// Returns [`Stats::given_up`] without a flush of the thread caches.
    #[cfg(test)]
    pub(crate) fn given_up(&self) -> u64 {
        self.state.lock_without_caches().stats.given_up
    }

    /// Starts the thread caches, as if threads had contended for the lock.
    #[cfg(test)]
    pub(crate) fn contend(&self) {
        self.state.caches.begin();
    }

    /// Returns the pool's lock, held.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Drop {
        self.state.lock_without_caches()
    }

    /// Number of times that memory was given back to the driver. `None` while some is being given
    /// back: the sum of free and held bytes is wrong then.
    pub fn returns(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.tells && state.leaving.is_empty()).then_some(state.stats.released)
    }

    /// Bytes held from the driver; `None` while another thread has the lock. For callers that must
    /// not wait.
    pub fn reserved_now(&self) -> Option<u64> {
        Some(self.state.try_lock_without_caches()?.stats.reserved)
    }
}
