//! One pool with its lock, and the requests and frees that use or avoid the lock.

use super::miss_state::Misses;
use super::state::{State, block_bytes};
use super::thread_caches::Shared;
use super::types::Settings;
use crate::driver::{Driver, PoolId};
use crate::handles::{Context, Stream};
use crate::types::{FreeError, Freed, Grant, PATIENCE, Stamp};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A stream-ordered pool of one device.
pub struct Pool<D: Driver> {
    pub(super) device: i32,
    is_pages: bool,
    pub(super) state: Shared<D::Event>,
    /// Held by a miss from its first look for memory until the memory is in place: misses take
    /// turns. Released while the host waits for the GPU.
    pub(super) misses: Mutex<Misses<D::Error>>,
    /// Reserved addresses of pages, as encoded by [`pack`]; 0 until there are any.
    pub(super) range: AtomicU64,
    pub(super) threshold: AtomicU64,
    /// True once a block was exported from the process.
    pub(super) has_exported: AtomicBool,
}

/// Base-2 logarithm of the bytes to which ranges are aligned.
const UNIT: u32 = 21;
/// Pause between two looks of a free that waits until the driver has taken the address back.
const LEAVE_PAUSE: Duration = Duration::from_micros(50);
/// Number of bits in a packed range for its bytes; the other bits are for its begin.
const BYTES: u32 = 27;

/// Packs a range of addresses into one word, so that a thread reads it as a whole.
pub(super) fn pack(base: u64, bytes: u64) -> u64 {
    (base >> UNIT) << BYTES | bytes >> UNIT
}

/// Bytes that a new pool keeps at a synchronisation: 0 for streams, as documented, and all for
/// `cudaMalloc`.
pub(super) fn first_threshold(settings: &Settings) -> u64 {
    match settings.backing.is_pages() {
        true => 0,
        false => u64::MAX,
    }
}

impl<D: Driver> Pool<D> {
    /// Makes a pool without any memory.
    pub fn new(device: i32, settings: Settings) -> Self {
        let threshold = first_threshold(&settings);
        Pool {
            device,
            is_pages: settings.backing.is_pages(),
            state: Shared::new(State::new(device, settings)),
            misses: Mutex::new(Misses {
                devices: vec![device],
                reserved: None,
                refusal: None,
                short: None,
            }),
            range: AtomicU64::new(0),
            threshold: AtomicU64::new(threshold),
            has_exported: AtomicBool::new(false),
        }
    }

    /// Identity of the pool, unique in the process.
    pub fn id(&self) -> PoolId {
        PoolId {
            device: self.device,
            number: std::ptr::from_ref(self).addr() as u64,
        }
    }

    /// Ordinal of the pool's device.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// True if the pool's memory is in pages.
    #[inline]
    pub fn is_pages(&self) -> bool {
        self.is_pages
    }

    /// Bytes of the block for a request.
    #[inline(always)]
    fn block_bytes(&self, bytes: u64) -> u64 {
        block_bytes(self.is_pages, bytes)
    }

    /// True if an address may be the pool's. For pages the answer is exact.
    #[inline]
    pub fn owns(&self, address: u64) -> bool {
        if self.is_pages() {
            return self.owns_page(address);
        }
        let state = self.state.lock_without_caches();
        match state.find(address) {
            None if state.leaving.contains(&address) => {
                drop(state);
                self.sees_off(address)
            }
            found => found.is_some(),
        }
    }

    /// True if an address is in the pool's pages. Takes no lock.
    #[inline]
    pub fn owns_page(&self, address: u64) -> bool {
        let range = self.range.load(Ordering::Acquire);
        let (base, bytes) = (range >> BYTES, range & ((1 << BYTES) - 1));
        (address >> UNIT).wrapping_sub(base) < bytes
    }

    /// Waits until the driver has taken back an address that was freed. Until then the pool must
    /// refuse another free of it. The driver would accept it, and the pool's own free would be the
    /// second one. Returns true if the address is the pool's, or if the wait takes longer than
    /// [`PATIENCE`].
    #[cold]
    fn sees_off(&self, address: u64) -> bool {
        let since = Instant::now();
        loop {
            let state = self.state.lock();
            let is_ours = state.find(address).is_some();
            if is_ours || !state.leaving.contains(&address) {
                return is_ours;
            }
            drop(state);
            if since.elapsed() > PATIENCE {
                return true;
            }
            thread::sleep(LEAVE_PAUSE);
        }
    }

    /// Allocates a block that the stream may use at once, without any call to the driver. `None` if
    /// there is none.
    #[inline(always)]
    pub fn try_allocate(&self, stream: Stream, bytes: u64) -> Option<Grant> {
        self.take(stream, bytes, false)
    }

    /// Allocates as [`Pool::try_allocate`] does; `all` as in [`State::take`].
    #[inline(always)]
    pub(super) fn take(&self, stream: Stream, bytes: u64, all: bool) -> Option<Grant> {
        let caches = &self.state.caches;
        if !caches.serve() {
            return self.take_without_caches(stream, bytes, all);
        }
        if let Some(grant) = caches.take(stream, bytes, self.block_bytes(bytes)) {
            return Some(grant);
        }
        let mut state = self.state.lock_without_caches();
        caches.report_own(&mut state);
        let queue = state.queues.of(stream);
        let mut grant = state.take_any(queue, bytes, all);
        if grant.is_none() && state.in_caches != 0 && !state.may_grow_beside_caches(bytes) {
            caches.flush(&mut state);
            grant = state.take_any(queue, bytes, all);
        }
        if let Some(grant) = &grant
            && !stream.is_ordered()
        {
            caches.adopt(&mut state, stream, grant.number);
        }
        grant
    }

    #[inline(always)]
    fn take_without_caches(&self, stream: Stream, bytes: u64, all: bool) -> Option<Grant> {
        let mut state = self.state.lock_without_caches();
        let queue = state.queues.of(stream);
        state.take_any(queue, bytes, all)
    }

    /// Allocates as [`Pool::try_allocate`] does, without the thread caches. This is the fastest way
    /// while [`Pool::has_caches`] is false.
    #[inline(always)]
    pub fn try_allocate_without_caches(&self, stream: Stream, bytes: u64) -> Option<Grant> {
        self.take_without_caches(stream, bytes, false)
    }

    /// Allocates a block of at least `bytes` bytes, aligned to 512 bytes, for later work of the
    /// stream.
    ///
    /// # Errors
    /// The driver's error, unchanged; [`Driver::OUT_OF_MEMORY`] beyond a limit.
    #[inline(always)]
    pub fn allocate(&self, driver: &D, stream: Stream, bytes: u64) -> Result<Grant, D::Error> {
        match self.try_allocate(stream, bytes) {
            Some(grant) => Ok(grant),
            None => self.miss(driver, stream, bytes),
        }
    }

    /// Frees a block after all work submitted to the stream so far. `seen` runs before the block
    /// can be allocated again, under the pool's lock or a thread cache's.
    ///
    /// # Errors
    /// [`FreeError::Unknown`] if the address is not the beginning of a block,
    /// [`FreeError::NotLive`] if the block is free already.
    #[inline(always)]
    pub fn free<S: Into<Stamp>>(
        &self,
        stream: Stream,
        address: u64,
        seen: impl FnOnce(&Freed) -> S,
    ) -> Result<(), FreeError<D::Error>> {
        let caches = &self.state.caches;
        if !caches.serve() {
            return self.free_without_caches(stream, address, seen);
        }
        let seen = match caches.free((Some(stream), self.device), address, seen) {
            Ok(_) => return Ok(()),
            Err(seen) => seen,
        };
        let mut state = self.state.lock_without_caches();
        let id = state.beginning(address).ok_or(FreeError::Unknown)?;
        caches.take_out(&mut state, id);
        let queue = state.queues.of(stream);
        let keeper = caches.keeper(&mut state, stream);
        let keeps =
            |slab: &mut _, id, now| keeper.is_some_and(|mut cache| cache.keep(slab, id, now));
        state.free(id, queue, keeps, seen)
    }

    /// True if there are thread caches now. They start and stop while threads allocate.
    #[inline(always)]
    pub fn has_caches(&self) -> bool {
        self.state.caches.serve()
    }

    /// Frees as [`Pool::free`] does, without the thread caches. This is the fastest way while
    /// [`Pool::has_caches`] is false.
    ///
    /// # Errors
    /// The errors of [`Pool::free`].
    #[inline(always)]
    pub fn free_without_caches<S: Into<Stamp>>(
        &self,
        stream: Stream,
        address: u64,
        seen: impl FnOnce(&Freed) -> S,
    ) -> Result<(), FreeError<D::Error>> {
        let mut state = self.state.lock_without_caches();
        let id = state.beginning(address).ok_or(FreeError::Unknown)?;
        self.state.caches.take_out(&mut state, id);
        let queue = state.queues.of(stream);
        state.free(id, queue, |_, _, _| false, seen)
    }

    /// Frees a block after all work submitted to a context so far, and returns the context. For a
    /// block of `cudaMalloc` it is the context of the allocation, for another block `current`.
    /// Context 0 stands for every context of the device.
    ///
    /// # Errors
    /// [`FreeError::NotLive`] if the block is free already. [`FreeError::Unknown`] if no block
    /// begins at the address, or if a block of a stream does and there is no `current` context.
    pub fn free_in_context<S: Into<Stamp>>(
        &self,
        address: u64,
        current: Option<Context>,
        seen: impl FnOnce(&Freed) -> S,
    ) -> Result<Context, FreeError<D::Error>> {
        let caches = &self.state.caches;
        let (mut state, seen) = if caches.serve() {
            let seen = match caches.free((None, self.device), address, seen) {
                Ok(context) => return Ok(context),
                Err(seen) => seen,
            };
            let mut state = self.state.lock_without_caches();
            caches.report_own(&mut state);
            (state, seen)
        } else {
            (self.state.lock_without_caches(), seen)
        };
        let id = state.beginning(address).ok_or(FreeError::Unknown)?;
        let block = state.slab.at(id);
        let own = block.for_all.then_some(block.context);
        let context = own.or(current).ok_or(FreeError::Unknown)?;
        caches.take_out(&mut state, id);
        let queue = state.queues.of(match context {
            Context(0) => Stream::all_of_device(self.device),
            context => Stream::all_of(context),
        });
        state.free(id, queue, |_, _, _| false, seen)?;
        Ok(context)
    }
}
