//! The thread caches: once threads wait for each other at a pool's lock, a block that a thread frees stays with that thread, and its next
//! request of that size on the same stream has the block without the lock.
//!
//! To the pool such a block is *in a thread cache*, whether it is at hand there or in the caller's hands. All that looks at
//! the pool's blocks calls them in first ([`Shared::lock`]). Only requests and frees leave them where they are
//! ([`Shared::lock_without_caches`]): a free of a single block takes that one out, and a request that finds nothing gets new memory, or calls all in.
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

/// How often threads wait for the lock within a second before there are caches. The caches go if they serve fewer requests than this
/// from one tick of the background thread to the next; without ticks (`GPUSHIM_DECAY=off`) they stay.
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

    /// The state with all blocks in it.
    #[inline]
    pub fn lock(&self) -> Locked<'_, State<E>> {
        let mut state = self.state.lock();
        self.caches.flush(&mut state);
        state
    }

    /// As [`Shared::lock`]; `None` if another thread has the lock.
    #[cfg(test)]
    pub fn try_lock(&self) -> Option<Locked<'_, State<E>>> {
        let mut state = self.state.try_lock()?;
        self.caches.flush(&mut state);
        Some(state)
    }

    /// The state without what is in the caches, for requests and frees.
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

    /// As [`Shared::lock_without_caches`]; `None` if another thread has the lock.
    pub fn try_lock_without_caches(&self) -> Option<Locked<'_, State<E>>> {
        self.state.try_lock()
    }
}

/// The thread caches of a pool.
#[derive(Default)]
pub(super) struct ThreadCaches {
    /// Whether they serve.
    serve: AtomicBool,
    /// Made when threads contend for the first time.
    caches: OnceLock<Box<[Part<Cache>]>>,
    /// While they do not serve: how often a thread waited for the pool's lock in this second, which has this number.
    waits: AtomicU64,
    second: AtomicU64,
}

impl ThreadCaches {
    /// A thread waits for the pool's lock.
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

    /// They serve from here on.
    pub fn begin(&self) {
        self.caches
            .get_or_init(|| (0..PARTS).map(|_| Part::default()).collect());
        self.serve.store(true, Ordering::Release);
    }

    /// Whether they serve.
    #[inline(always)]
    pub fn serve(&self) -> bool {
        self.serve.load(Ordering::Acquire)
    }

    /// A tick of the background thread, which has called all blocks in. Caches that hardly served any more do not from here on.
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

    /// A block of the calling thread's cache, of `need` bytes for a request of `bytes`.
    #[inline(always)]
    pub fn take(&self, stream: Stream, bytes: u64, need: u64) -> Option<Grant> {
        self.own()?.take(stream, bytes, need)
    }

    /// Takes a block back that the calling thread had from its cache, on a stream or on none in particular: the block's
    /// context. An error, `seen` again, if the pool must take it back.
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

    /// The calling thread's cache, if it may keep what is freed on a stream from here on. Tells the pool what happened in it.
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

    /// The calling thread's cache takes over a block that the pool handed out for all streams of a context, unless a
    /// graph may hold it.
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

    /// Tells the pool what happened in the calling thread's cache.
    pub fn report_own<E: Copy>(&self, state: &mut State<E>) {
        if let Some(mut cache) = self.own() {
            cache.report(state);
        }
    }

    /// Takes a block out of its thread cache, if it is in one and its caller has it. A free one stays there.
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

    /// The pool has all blocks of all caches, and knows of all that happened in them.
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
    /// Whether a request that finds no free block gets new memory rather than what the thread caches have.
    pub fn may_grow_beside_caches(&self, bytes: u64) -> bool {
        let is_paged = self.settings.backing.is_pages() && self.space.is_reserved;
        let need = bytes.saturating_add(self.settings.page);
        let held = self.stats.reserved.saturating_add(need);
        self.in_caches != 0 && is_paged && held <= self.budget(bytes)
    }
}
