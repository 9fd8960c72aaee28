//! Thread caches. Once threads contend for a pool's lock, a block that a thread frees stays with
//! the thread. The thread's next request of this size on the same stream takes the block without
//! the lock.
//!
//! To the pool such a block is *in a thread cache*, whether it is cached there or live. Everything
//! that looks at the pool's blocks flushes the caches first ([`Shared::lock`]). Only requests and
//! frees leave blocks in the caches ([`Shared::lock_without_caches`]):
//!
//! - A free of a single block takes this block out.
//! - A request that finds nothing gets new memory, or flushes all caches.
//!
//! Locks are taken in one order: the pool's, then a cache's.

use super::block::{Id, State as Is};
use super::state::State;
use super::thread_cache::Cache;
use crate::handles::{Address, Context, Stream};
use crate::lock::{Lock, Locked};
use crate::per_thread::{PARTS, Part, own};
use crate::types::{Freed, Grant, Stamp};
use spin::mutex::SpinMutexGuard;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Number of waits for the lock within a second that starts the caches. The caches stop if they
/// serve fewer requests than this from one tick of the background thread to the next. Without ticks
/// (`GPUSHIM_DECAY=off`) they stay.
const CONTENDED: u64 = 1000;

/// A pool's state, with the caches in front of it.
pub(super) struct Shared<E> {
    state: Lock<State<E>>,
    pub caches: ThreadCaches,
}

impl<E: Copy> Shared<E> {
    pub fn new(state: State<E>) -> Self {
        Shared {
            state: Lock::new(state),
            caches: ThreadCaches::default(),
        }
    }

    /// Locks the state and flushes all caches into it.
    #[inline]
    pub fn lock(&self) -> Locked<'_, State<E>> {
        let mut state = self.state.lock();
        self.caches.flush(&mut state);
        state
    }

    /// Locks as [`Shared::lock`] does; `None` if another thread has the lock.
    #[cfg(test)]
    pub fn try_lock(&self) -> Option<Locked<'_, State<E>>> {
        let mut state = self.state.try_lock()?;
        self.caches.flush(&mut state);
        Some(state)
    }

    /// Locks the state without a flush of the caches, for requests and frees.
    #[inline(always)]
    pub fn lock_without_caches(&self) -> Locked<'_, State<E>> {
        match self.state.try_lock() {
            Some(state) => state,
            None => {
                self.caches.waits();
                self.state.lock()
            }
        }
    }

    /// Locks as [`Shared::lock_without_caches`] does; `None` if another thread has the lock.
    pub fn try_lock_without_caches(&self) -> Option<Locked<'_, State<E>>> {
        self.state.try_lock()
    }
}

/// The thread caches of a pool.
#[derive(Default)]
pub(super) struct ThreadCaches {
    /// True while the caches serve requests.
    serve: AtomicBool,
    /// Caches by thread part. Made when threads contend for the first time.
    caches: OnceLock<Box<[Part<Cache>]>>,
    /// Number of waits for the pool's lock in the second `second`, counted while the caches do not
    /// serve.
    waits: AtomicU64,
    second: AtomicU64,
}

impl ThreadCaches {
    /// Counts a wait for the pool's lock. Starts the caches if there were enough.
    #[cold]
    fn waits(&self) {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        if self.serve.load(Ordering::Relaxed) {
            return;
        }
        let second = BEGUN.get_or_init(Instant::now).elapsed().as_secs();
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.waits.store(0, Ordering::Relaxed);
        }
        if self.waits.fetch_add(1, Ordering::Relaxed) >= CONTENDED {
            self.begin();
        }
    }

    /// Starts the thread caches.
    pub fn begin(&self) {
        self.caches
            .get_or_init(|| (0..PARTS).map(|_| Part::default()).collect());
        self.serve.store(true, Ordering::Release);
    }

    /// True while the caches serve requests.
    #[inline(always)]
    pub fn serve(&self) -> bool {
        self.serve.load(Ordering::Acquire)
    }

    /// Stops the caches if they hardly served any requests since the last tick. The background
    /// thread has flushed them.
    pub fn tick<E>(&self, state: &mut State<E>) {
        if std::mem::take(&mut state.served) < CONTENDED {
            self.serve.store(false, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn own(&self) -> Option<SpinMutexGuard<'_, Cache>> {
        if !self.serve() {
            return None;
        }
        Some(self.caches.get()?.get(own())?.lock())
    }

    /// Takes a block of `need` bytes from the calling thread's cache, for a request of `bytes`
    /// bytes.
    #[inline(always)]
    pub fn take(&self, stream: Stream, bytes: u64, need: u64) -> Option<Grant> {
        self.own()?.take(stream, bytes, need)
    }

    /// Frees a block allocated through the calling thread's cache, on a stream or on none in
    /// particular. Returns the block's context, or `seen` as the error if the pool must free the
    /// block.
    #[inline(always)]
    pub fn free<S: Into<Stamp>, F: FnOnce(&Freed) -> S>(
        &self,
        (stream, device): (Option<Stream>, i32),
        address: Address,
        seen: F,
    ) -> Result<Context, F> {
        match self.own() {
            Some(mut own) => own.free((stream, device), address, seen),
            None => Err(seen),
        }
    }

    /// Returns the calling thread's cache if it may keep blocks freed on a stream. Reports the
    /// cache's counts to the pool.
    #[inline(always)]
    pub fn keeper<E: Copy>(
        &self,
        state: &mut State<E>,
        stream: Stream,
    ) -> Option<SpinMutexGuard<'_, Cache>> {
        let mut cache = self.own()?;
        cache.report(state);
        let may_keep = stream.is_ordered() && !state.captures.is_open();
        if !may_keep || !cache.serves(state, stream) {
            return None;
        }
        state.in_caches |= 1 << own();
        Some(cache)
    }

    /// Gives the calling thread's cache a block that the pool allocated for all streams of a
    /// context. Does nothing if the block was exported or a graph may hold it.
    pub fn adopt<E: Copy>(&self, state: &mut State<E>, stream: Stream, id: Id) {
        let block = state.slab.at(id);
        if block.group != 0 || block.exported || state.captures.is_open() {
            return;
        }
        if let Some(mut cache) = self.own()
            && cache.serves(state, stream)
        {
            state.in_caches |= 1 << own();
            let queue = state.queues.of(stream);
            cache.adopt(state, (stream, queue), id);
        }
    }

    /// Reports the counts of the calling thread's cache to the pool.
    pub fn report_own<E: Copy>(&self, state: &mut State<E>) {
        if let Some(mut cache) = self.own() {
            cache.report(state);
        }
    }

    /// Takes a live block out of its thread cache, if it is in one. A free block stays there.
    #[inline(always)]
    pub fn take_out<E: Copy>(&self, state: &mut State<E>, id: Id) {
        if state.in_caches != 0 {
            self.take_out_of_cache(state, id);
        }
    }

    fn take_out_of_cache<E: Copy>(&self, state: &mut State<E>, id: Id) {
        let block = state.slab.at(id);
        let (address, part) = (block.address, usize::from(block.part));
        if block.state != Is::InThreadCache {
            return;
        }
        if let Some(part) = self.caches.get().and_then(|caches| caches.get(part)) {
            part.lock().take_out(state, address);
        }
    }

    /// Gives the pool all blocks of all caches, and their counts.
    #[inline(always)]
    pub fn flush<E: Copy>(&self, state: &mut State<E>) {
        if state.in_caches != 0 {
            self.flush_all(state);
        }
    }

    #[cold]
    fn flush_all<E: Copy>(&self, state: &mut State<E>) {
        let mut in_caches = std::mem::take(&mut state.in_caches);
        while in_caches != 0 {
            let at = in_caches.trailing_zeros() as usize;
            in_caches &= in_caches - 1;
            if let Some(part) = self.caches.get().and_then(|caches| caches.get(at)) {
                part.lock().flush(state);
            }
        }
    }
}

impl<E: Copy> State<E> {
    /// True if a request that finds no free block gets new memory rather than a block from a thread
    /// cache.
    pub fn may_grow_beside_caches(&self, bytes: u64) -> bool {
        let is_paged = self.settings.backing.is_pages() && self.space.is_reserved;
        let need = bytes.saturating_add(self.settings.page);
        let held = self.stats.reserved.saturating_add(need);
        self.in_caches != 0 && is_paged && held <= self.budget(bytes)
    }
}
