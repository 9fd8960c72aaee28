//! One pool: its lock, and what is done without it.

use super::misses::Misses;
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
    /// Its memory is in pages.
    is_pages: bool,
    pub(super) state: Shared<D::Event>,
    /// Held by a miss from its first look for memory until that is in place: misses take turns.
    pub(super) misses: Mutex<Misses<D::Error>>,
    /// The reserved addresses of pages, as [`pack`] tells; 0 until there are any.
    pub(super) range: AtomicU64,
    pub(super) threshold: AtomicU64,
    /// A block was reached from outside the process at some time.
    pub(super) has_exported: AtomicBool,
}

/// Ranges begin and end at multiples of this.
const UNIT: u32 = 21;
/// Pause between two looks of a free that waits for the driver, which is about to get the address.
const LEAVE_PAUSE: Duration = Duration::from_micros(50);
/// Bits of the bytes of a range in one word; the rest is its begin.
const BYTES: u32 = 27;

/// A range of addresses in one word, so that it is seen whole.
pub(super) fn pack(base: u64, bytes: u64) -> u64 {
    (base >> UNIT) << BYTES | bytes >> UNIT
}

/// Bytes to keep at a synchronisation, at first: 0 for streams, as documented. `cudaMalloc` keeps its cache.
pub(super) fn first_threshold(settings: &Settings) -> u64 {
    match settings.backing.is_pages() {
        true => 0,
        false => u64::MAX,
    }
}

impl<D: Driver> Pool<D> {
    /// A pool without any memory.
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

    /// Which pool it is.
    pub fn id(&self) -> PoolId {
        PoolId {
            device: self.device,
            number: std::ptr::from_ref(self).addr() as u64,
        }
    }

    /// The ordinal of its device.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// Tells whether its memory is in pages.
    #[inline]
    pub fn is_pages(&self) -> bool {
        self.is_pages
    }

    /// Bytes of the block for a request.
    #[inline(always)]
    fn block_bytes(&self, bytes: u64) -> u64 {
        block_bytes(self.is_pages, bytes)
    }

    /// Whether an address may be the pool's. For pages the answer is exact.
    #[inline]
    pub fn owns(&self, address: u64) -> bool {
        let range = self.range.load(Ordering::Acquire);
        if range != 0 {
            let (base, bytes) = (range >> BYTES, range & ((1 << BYTES) - 1));
            return (address >> UNIT).wrapping_sub(base) < bytes;
        }
        let state = self.state.lock_without_caches();
        match state.find(address) {
            None if state.leaving == address => {
                drop(state);
                self.sees_off(address)
            }
            found => found.is_some(),
        }
    }

    /// Waits until the driver has an address that was freed. Until then the free of it is the pool's to refuse: the
    /// driver would take the memory back, and the pool's own free would be the second. After that the driver knows
    /// what is there.
    #[cold]
    fn sees_off(&self, address: u64) -> bool {
        let since = Instant::now();
        loop {
            let state = self.state.lock();
            let is_ours = state.find(address).is_some();
            if is_ours || state.leaving != address || address == 0 {
                return is_ours;
            }
            drop(state);
            if since.elapsed() > PATIENCE {
                return true;
            }
            thread::sleep(LEAVE_PAUSE);
        }
    }

    /// A block that the stream may use at once, without any call to the driver; `None`: there is none.
    #[inline(always)]
    pub fn try_allocate(&self, stream: Stream, bytes: u64) -> Option<Grant> {
        self.take(stream, bytes, false)
    }

    /// As [`Pool::try_allocate`]; `all`: of however many streams.
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

    /// As [`Pool::try_allocate`], without a use of thread caches: the fastest way where [`Pool::has_caches`] is false.
    #[inline(always)]
    pub fn try_allocate_without_caches(&self, stream: Stream, bytes: u64) -> Option<Grant> {
        self.take_without_caches(stream, bytes, false)
    }

    /// A block of at least `bytes` bytes, aligned to 512 bytes, for work submitted to the stream from
    /// now on.
    ///
    /// # Errors
    /// The driver's, verbatim; [`Driver::OUT_OF_MEMORY`] beyond a limit.
    #[inline(always)]
    pub fn allocate(&self, driver: &D, stream: Stream, bytes: u64) -> Result<Grant, D::Error> {
        match self.try_allocate(stream, bytes) {
            Some(grant) => Ok(grant),
            None => self.miss(driver, stream, bytes),
        }
    }

    /// Takes a block back after all work submitted to the stream so far. `seen` runs before the block can be handed out again, under
    /// the pool's lock or that of a thread cache.
    ///
    /// # Errors
    /// [`FreeError::Unknown`] if the address is not the beginning of a block, [`FreeError::NotLive`] if
    /// it is free already.
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

    /// Whether there are thread caches now. They come and go while threads allocate.
    #[inline(always)]
    pub fn has_caches(&self) -> bool {
        self.state.caches.serve()
    }

    /// As [`Pool::free`], without a use of thread caches: the fastest way where [`Pool::has_caches`] is false.
    ///
    /// # Errors
    /// As [`Pool::free`].
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

    /// Takes a block back after all work submitted to a context so far, and returns the context: for
    /// a block of `cudaMalloc` the one of its allocation, for another block `current`. Context 0 is
    /// any of the device.
    ///
    /// # Errors
    /// [`FreeError::NotLive`] if it is free already. [`FreeError::Unknown`] if no block begins there,
    /// or one of a stream, and there is no `current` context.
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
