//! Requests that no free memory answers. The pool tries one way after another to get memory, each
//! slower than the one before.

use super::backing::mapping::{Mapping, Mode, PageSource};
use super::backing::space::Piece;
use super::block::State as Is;
use super::miss_state::{CREATE, MissGuard, Misses, unlocked};
use super::serve::{Pool, pack};
use super::types::Backing;
use crate::driver::Driver;
use crate::handles::Stream;
use crate::rules;
use crate::types::Grant;
use crate::types::Source;
use std::sync::atomic::Ordering;

/// Bytes of the smallest range of addresses that is requested where the driver refuses larger ones.
const LEAST_ADDRESSES: u64 = 1 << 30;
impl<D: Driver> Pool<D> {
    #[cold]
    pub(super) fn miss(&self, driver: &D, stream: Stream, bytes: u64) -> Result<Grant, D::Error> {
        let mut misses = self.misses.lock();
        if let Some(grant) = self.grow_beside_caches(driver, &mut misses, stream, bytes) {
            return Ok(grant);
        }
        let mut error = D::OUT_OF_MEMORY;
        misses.short = None;
        if bytes <= self.state.lock().settings.addresses {
            self.refresh_some(driver);
            for &mode in rules::ways(&Mode::ALL) {
                error = match self.search(driver, &mut misses, stream, bytes, mode) {
                    Ok(grant) => return Ok(grant),
                    Err(error) if D::is_out_of_memory(error) => error,
                    Err(error) => return Err(error),
                };
                if misses.refusal.is_some() {
                    break;
                }
            }
        }
        if misses.give_in(driver, self.device)
            && let Ok(grant) = self.search(driver, &mut misses, stream, bytes, Mode::Balanced)
        {
            return Ok(grant);
        }
        self.state.lock().stats.out_of_memory += 1;
        Err(error)
    }

    /// Tries one way to get memory for a request: takes a block that became free, or else grows.
    fn search(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        stream: Stream,
        bytes: u64,
        mode: Mode,
    ) -> Result<Grant, D::Error> {
        let waited = match mode {
            Mode::Balanced => {
                if let Some(grant) = self.take(stream, bytes, true) {
                    return Ok(grant);
                }
                if self.is_tight(bytes) {
                    if let Some(grant) = self.take_ordered(driver, misses, stream, bytes) {
                        return Ok(grant);
                    }
                    if self.is_pages() && !stream.is_ordered() {
                        self.finish_for_all(driver, misses);
                    }
                }
                None
            }
            Mode::Again => {
                self.reap(driver, misses);
                if !unlocked(misses, || driver.make_room(self.id(), false)) {
                    return Err(D::OUT_OF_MEMORY);
                }
                None
            }
            Mode::Short => self.order_behind_all(driver, stream),
            Mode::Late => {
                self.state.lock().give_up();
                self.finish_all(driver, misses);
                self.reap(driver, misses);
                unlocked(misses, || driver.make_room(self.id(), true));
                self.state.lock().consolidate();
                Some(Source::Waited)
            }
            Mode::Last => {
                // A mapping that failed in an earlier mode has fences of its own.
                self.finish_all(driver, misses);
                if self.give_back(driver, misses, u64::MAX, 0) == 0 {
                    return Err(D::OUT_OF_MEMORY);
                }
                None
            }
        };
        if let Some(mut grant) = self.take(stream, bytes, true) {
            if let Some(source) = waited {
                self.state.lock().stats.corrected(grant.source, source);
                grant.source = source;
            }
            return Ok(grant);
        }
        self.grow(driver, misses, stream, bytes, mode)
    }

    /// Gets memory for a request without a flush of the thread caches. `None` unless the budget
    /// allows it and no stream captures.
    fn grow_beside_caches(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        stream: Stream,
        bytes: u64,
    ) -> Option<Grant> {
        let state = self.state.lock_without_caches();
        let may_grow = state.may_grow_beside_caches(bytes) && !state.captures.is_open();
        drop(state);
        let grown = may_grow.then(|| self.grow(driver, misses, stream, bytes, Mode::Balanced));
        grown?.ok()
    }

    /// Gets new memory for a request, or free memory from elsewhere in the pool.
    fn grow(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        stream: Stream,
        bytes: u64,
        mode: Mode,
    ) -> Result<Grant, D::Error> {
        let mut state = self.state.lock_without_caches();
        let need = state.block_bytes(bytes);
        if let Backing::Whole(home) = state.settings.backing {
            drop(state);
            return self.grow_whole(driver, misses, home, stream, bytes, mode);
        }
        if !state.space.is_reserved {
            drop(state);
            self.reserve(driver, misses, need)?;
            state = self.state.lock_without_caches();
        }
        let queue = state.queues.of(stream);
        let Some(mapping) = state.mapping(queue, need, mode) else {
            return Err(D::OUT_OF_MEMORY);
        };
        drop(state);
        self.take_back(driver, misses, &mapping);
        let mut handles = Vec::with_capacity(mapping.fills.len());
        let new = mapping.new_bytes();
        let admission = match self.is_beyond(new) {
            true => None,
            false => driver.admit(self.device, new),
        };
        let result = match &admission {
            Some(_) => self.carry_out(driver, misses, &mapping, &mut handles),
            None => Err(D::OUT_OF_MEMORY),
        };
        drop(admission);
        let mut state = self.state.lock_without_caches();
        match result {
            Ok(()) => {
                let id = state.mapped(mapping, &handles, queue);
                Ok(state.grown(id, queue, bytes, Source::Grown))
            }
            Err(error) => {
                state.abandoned(&mapping, &handles, queue);
                Err(error)
            }
        }
    }

    /// Reserves addresses. Requests half as many where the driver refuses.
    fn reserve(
        &self,
        driver: &D,
        misses: &mut Misses<D::Error>,
        need: u64,
    ) -> Result<(), D::Error> {
        let state = self.state.lock();
        let (mut bytes, page) = (state.settings.addresses, state.settings.page);
        drop(state);
        let least = need.saturating_mul(2).max(LEAST_ADDRESSES);
        let base = loop {
            match driver.reserve(self.device, bytes) {
                Ok(base) => break base,
                Err(_) if bytes / 2 >= least => bytes /= 2,
                Err(error) => {
                    misses.refusal = Some(("cuMemAddressReserve", error));
                    return Err(error);
                }
            }
        };
        (misses.reserved, misses.refusal) = (Some((base, bytes)), None);
        // Pages lie at multiples of their size, even if the driver's range begins or ends
        // elsewhere.
        let first = base.next_multiple_of(page);
        let bytes = (bytes - (first - base)) / page * page;
        let mut state = self.state.lock();
        state.reserved(first, bytes);
        self.range.store(pack(first, bytes), Ordering::Release);
        Ok(())
    }

    /// Gives pieces that fit no gap of a mapping back to the driver, after their work is complete.
    /// Puts a piece back if that fails.
    fn take_back(&self, driver: &D, misses: &mut MissGuard<'_, D>, mapping: &Mapping) {
        for (id, address, piece) in &mapping.given {
            let is_over = rules::may_take_back(|| self.finish(driver, misses, *id));
            if is_over && self.end_piece(driver, *address, piece) {
                self.state
                    .lock_without_caches()
                    .evicted(*id, *address, *piece);
            } else {
                self.state.lock_without_caches().insert(*id);
            }
        }
    }

    fn carry_out(
        &self,
        driver: &D,
        misses: &mut Misses<D::Error>,
        mapping: &Mapping,
        handles: &mut Vec<u64>,
    ) -> Result<(), D::Error> {
        let devices = misses.devices.clone();
        let mut missing = mapping.new_bytes();
        for fill in &mapping.fills {
            let (to, bytes) = (fill.to, fill.bytes);
            let handle = match fill.source {
                PageSource::New => {
                    let created = driver.create(self.device, bytes);
                    created.inspect_err(|error| misses.note::<D>(CREATE, *error, missing))?
                }
                PageSource::Moved(from, _) | PageSource::Aliased(from, _) => {
                    let state = self.state.lock_without_caches();
                    state
                        .space
                        .pieces
                        .get(&from)
                        .map_or(0, |piece| piece.handle)
                }
            };
            let is_new = matches!(fill.source, PageSource::New);
            if let PageSource::Moved(from, _) = fill.source {
                driver.unmap(from, bytes)?;
            }
            let (mut call, mapped) = ("cuMemMap", driver.map(to, bytes, handle));
            let placed = mapped.and_then(|()| {
                call = "cuMemSetAccess";
                driver.allow(to, bytes, &devices).inspect_err(|_| {
                    let _ = driver.unmap(to, bytes);
                })
            });
            if let Err(error) = placed {
                misses.note::<D>(call, error, missing);
                if is_new {
                    driver.destroy(self.device, handle, bytes);
                } else if let PageSource::Moved(from, _) = fill.source {
                    // The piece is mapped where it was. If this fails, it fails for the block's
                    // next user, too.
                    let _ = driver.map(from, bytes, handle);
                    let _ = driver.allow(from, bytes, &misses.devices);
                }
                return Err(error);
            }
            handles.push(handle);
            missing -= if is_new { bytes } else { 0 };
        }
        Ok(())
    }

    /// True if the pool would exceed its creator's limit with `bytes` bytes more.
    pub(super) fn is_beyond(&self, bytes: u64) -> bool {
        let state = self.state.lock_without_caches();
        let held = state.stats.reserved.saturating_add(bytes);
        !rules::may_hold(held, state.settings.max_size)
    }

    /// Gives free memory back to the driver: up to `bytes` bytes or one piece more. Takes only
    /// memory that was freed at least `age` ticks ago and whose work is complete. Returns the bytes
    /// given back.
    pub(super) fn give_back(
        &self,
        driver: &D,
        misses: &mut MissGuard<'_, D>,
        bytes: u64,
        age: u32,
    ) -> u64 {
        let mut state = self.state.lock();
        state.consolidate();
        let victims = state.evict(bytes, age);
        let (backing, cleared) = (state.settings.backing, state.cleared);
        drop(state);
        let mut given = 0;
        for (id, address, piece) in victims {
            let gone = if let Backing::Whole(home) = backing {
                if self.state.lock().cleared != cleared {
                    break;
                }
                self.end_allocation(driver, misses, home, id)
            } else {
                let gone = self.end_piece(driver, address, &piece);
                let mut state = self.state.lock();
                if gone {
                    state.evicted(id, address, piece);
                } else {
                    state.insert(id);
                }
                gone
            };
            given += if gone { piece.bytes } else { 0 };
        }
        given
    }

    /// True if the stream should wait for another, because growth would exceed the budget.
    fn is_tight(&self, bytes: u64) -> bool {
        let state = self.state.lock();
        state.stats.reserved.saturating_add(bytes) > state.budget(bytes)
    }

    /// Unmaps former places of moved pieces, and frees exported allocations, if their work is known
    /// to be complete. Returns the bytes given back to the driver.
    pub(super) fn reap(&self, driver: &D, misses: &mut MissGuard<'_, D>) -> u64 {
        self.unmap_stale(driver, None);
        self.end_exported(driver, misses, false)
    }

    fn unmap_stale(&self, driver: &D, handle: Option<u64>) {
        let ready = self.state.lock().stale(handle);
        for (id, handle) in ready {
            let state = self.state.lock();
            let (address, bytes) = (state.slab.at(id).address, state.slab.at(id).size);
            drop(state);
            let done = driver.unmap(address, bytes).is_ok();
            let mut state = self.state.lock();
            if done {
                state.unmapped(id);
            } else {
                state.slab.at_mut(id).state = Is::Stale;
                state.space.stale.push((id, handle));
            }
        }
    }

    /// Gives a piece that no work uses back to the driver. Returns false if the piece stays.
    fn end_piece(&self, driver: &D, address: u64, piece: &Piece) -> bool {
        // Work that used the piece elsewhere came before, and is complete, too.
        self.unmap_stale(driver, Some(piece.handle));
        let gone = driver.unmap(address, piece.bytes).is_ok();
        if gone {
            // Before the driver reports the memory as free: it must not count twice.
            let mut state = self.state.lock();
            state.stats.release(piece.bytes);
            state.tells = true;
            drop(state);
            driver.destroy(self.device, piece.handle, piece.bytes);
        }
        gone
    }
}
