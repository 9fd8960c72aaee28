//! The pool: the lock, and the calls to the device between two holdings of it.

use super::block::State as BlockState;
use super::device::Device;
use super::state::{After, Cover, State};
use super::thread_cache::{Flush, ThreadCaches};
use super::types::{Found, Settings};
use crate::handles::{Address, Context};
use crate::policy::Reuse;
use crate::size_class;
use crate::stats::Stats;
use crate::types::{FreeError, Freed, Grant, Source, Stamp};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// A caching allocator of device memory over a [`Device`].
pub struct DevicePool<D: Device> {
    pub(super) device: D,
    pub(super) strict: bool,
    pub(super) margin: Option<u64>,
    /// Serves hits thread by thread; what it does not, `state` does.
    pub(super) thread_cache: Option<ThreadCaches>,
    pub(super) state: Mutex<State<D::Event>>,
    /// Calls in flight have returned, or memory has gone back.
    pub(super) changed: Condvar,
}

/// The pool's lock, held.
pub(super) type Guard<'a, D> = MutexGuard<'a, State<<D as Device>::Event>>;

impl<D: Device> DevicePool<D> {
    /// A pool without any memory.
    pub fn new(device: D, settings: Settings) -> Self {
        let apart = settings.thread_cache
            && settings.reuse != Reuse::Strict
            && settings.cache_max.is_none();
        DevicePool {
            device,
            thread_cache: apart.then(ThreadCaches::new),
            strict: settings.reuse == Reuse::Strict,
            margin: settings.margin,
            state: Mutex::new(State::new(settings)),
            changed: Condvar::new(),
        }
    }

    /// The device beneath.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// A ready block, without any call to the device; `None` if there is none.
    #[inline(always)]
    pub fn try_allocate(&self, context: Context, bytes: u64) -> Option<Grant> {
        self.take(context, bytes).ok()
    }

    /// A ready block, or the lock under which there was none.
    #[inline(always)]
    pub(super) fn take(&self, context: Context, bytes: u64) -> Result<Grant, Guard<'_, D>> {
        let Some(thread_cache) = &self.thread_cache else {
            let mut state = self.state.lock();
            let refusing = self.refusing(&mut state);
            return match state.index_of(context) {
                Some(index) => match state.take(index, bytes, Source::Hit) {
                    Ok(grant) => {
                        self.keep(&mut state, &grant, refusing);
                        Ok(grant)
                    }
                    Err(_) => Err(state),
                },
                None => Err(state),
            };
        };
        let size = size_class::block_bytes(bytes);
        if let Some(grant) = thread_cache.take(context, bytes, size) {
            return Ok(grant);
        }
        self.take_behind(thread_cache, context, bytes, size)
    }

    /// As [`DevicePool::take`], when the thread cache has nothing: from the pool, and with a loan for the thread cache.
    #[inline(never)]
    pub(super) fn take_behind(
        &self,
        thread_cache: &ThreadCaches,
        context: Context,
        bytes: u64,
        size: u64,
    ) -> Result<Grant, Guard<'_, D>> {
        let mut state = self.state.lock();
        let refusing = self.refusing(&mut state);
        let Some(index) = state.index_of(context) else {
            return Err(state);
        };
        thread_cache.flush_own(&mut state);
        match state.take(index, bytes, Source::Hit) {
            Ok(grant) => {
                self.keep(&mut state, &grant, refusing);
                thread_cache.adopt(&mut state, &grant, size);
                Ok(grant)
            }
            Err(_) => Err(state),
        }
    }

    /// A block of at least `bytes` bytes, aligned to 512 bytes.
    ///
    /// # Errors
    /// The driver's, verbatim, after everything cached has been given back to it if it ran out of
    /// memory; [`Device::OUT_OF_MEMORY`] beyond a limit of the device's.
    #[inline(always)]
    pub fn allocate(&self, context: Context, bytes: u64) -> Result<Grant, D::Error> {
        match self.take(context, bytes) {
            Ok(grant) => Ok(grant),
            Err(state) => self.allocate_behind(state, context, bytes),
        }
    }

    /// As [`DevicePool::allocate`], when no block is ready: first of all other threads' caches are flushed.
    #[cold]
    pub(super) fn allocate_behind<'a>(
        &'a self,
        mut state: Guard<'a, D>,
        context: Context,
        bytes: u64,
    ) -> Result<Grant, D::Error> {
        let refusing = self.refusing(&mut state);
        // What other threads have back joins the fence that this request may have to close.
        self.flush_caches(&mut state, Flush::Back);
        let grant = self.allocate_slowly(&mut state, context, bytes)?;
        self.keep(&mut state, &grant, refusing);
        if let Some(thread_cache) = &self.thread_cache {
            thread_cache.adopt(&mut state, &grant, size_class::block_bytes(bytes));
        }
        Ok(grant)
    }

    /// The captures because of which the driver would refuse the calling thread an allocation or a free.
    #[inline]
    fn refusing(&self, state: &mut Guard<'_, D>) -> Vec<u64> {
        if !state.captures.is_open() {
            return Vec::new();
        }
        MutexGuard::unlocked(state, || self.device.refusing())
    }

    /// The program depends on a block that the driver would not have handed out.
    #[inline]
    fn keep(&self, state: &mut State<D::Event>, grant: &Grant, refusing: Vec<u64>) {
        if !refusing.is_empty() {
            state.keep(grant.address, refusing);
        }
    }

    /// Flushes the thread caches.
    pub(super) fn flush_caches(&self, state: &mut State<D::Event>, what: Flush) {
        if let Some(thread_cache) = &self.thread_cache {
            thread_cache.flush_caches(state, what);
        }
    }

    /// Takes a block back.
    ///
    /// `seen` runs under the lock, before the block can be handed out again, and says when that was.
    ///
    /// # Errors
    /// [`FreeError::Unknown`] if the driver has to answer, [`FreeError::NotLive`] for a block that
    /// is free already, the driver's error if the free needed it (`strict`, exported blocks).
    #[inline(always)]
    pub fn free<S: Into<Stamp>>(
        &self,
        address: Address,
        seen: impl FnOnce(&Freed) -> S,
    ) -> Result<(), FreeError<D::Error>> {
        match &self.thread_cache {
            Some(thread_cache) => match thread_cache.free(address, seen) {
                Ok(()) => Ok(()),
                Err(seen) => self.free_behind(address, seen),
            },
            None => self.free_behind(address, seen),
        }
    }

    /// As [`DevicePool::free`], when the thread cache does not have the block.
    #[inline(never)]
    pub(super) fn free_behind<S: Into<Stamp>>(
        &self,
        address: Address,
        seen: impl FnOnce(&Freed) -> S,
    ) -> Result<(), FreeError<D::Error>> {
        let mut state = self.state.lock();
        self.not_departing(&mut state, address)?;
        if !self.refusing(&mut state).is_empty() {
            state.keep_freed(address);
        }
        if let Some(thread_cache) = &self.thread_cache {
            thread_cache.flush_own(&mut state);
            if let Some(&id) = state.map.get(&address)
                && state.slab.at(id).state == BlockState::InThreadCache
                && !thread_cache.reclaim(&mut state, address, id)
            {
                return Err(FreeError::NotLive);
            }
        }
        match state.free(address, self.strict, seen)? {
            After::Nothing => Ok(()),
            after => self.free_slowly(state, after),
        }
    }

    #[cold]
    pub(super) fn free_slowly<'a>(
        &'a self,
        mut state: Guard<'a, D>,
        after: After,
    ) -> Result<(), FreeError<D::Error>> {
        match after {
            After::Nothing => {}
            After::Synchronize(serial) => {
                let Cover { contexts, .. } = state.cover(serial);
                let Some(arena) = state.arena_mut(serial) else {
                    return Ok(());
                };
                let id = arena.fences.timeline.close();
                let result = self.outside(&mut state, |device| {
                    contexts
                        .iter()
                        .try_for_each(|context| device.finish(*context))
                });
                if let Err(error) = result {
                    let captures = || {
                        contexts
                            .iter()
                            .any(|context| self.device.captures(*context))
                    };
                    let is_captured = D::is_capture(error)
                        || state.captures.is_open()
                        || MutexGuard::unlocked(&mut state, captures);
                    // A capture began meanwhile, or was left open in a green context: the block waits for its fence.
                    return if is_captured {
                        Ok(())
                    } else {
                        Err(FreeError::Driver(error))
                    };
                }
                state.completed(serial, id);
                if let Some(device) = state.arena(serial).map(|arena| arena.device) {
                    self.shrink(&mut state, device);
                }
            }
            After::Release(victim) => {
                self.release_exported(&mut state, victim)
                    .map_err(FreeError::Driver)?;
            }
            After::Shrink(device) => self.shrink(&mut state, device),
        }
        Ok(())
    }

    /// The block's address left the process (IPC, DMA-BUF): when it is freed it goes straight back
    /// to the driver.
    pub fn exported(&self, address: Address) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.flush_caches(state, Flush::All);
        let Some(id) = state.find(address) else {
            return;
        };
        state.slab.at_mut(id).exported = true;
    }

    /// Base and requested bytes of the live block that contains an address.
    pub fn find(&self, address: Address) -> Option<(Address, u64)> {
        match self.look_up(address) {
            Found::Live(base, requested) => Some((base, requested)),
            Found::Free | Found::Unknown => None,
        }
    }

    /// What an address is in.
    pub fn look_up(&self, address: Address) -> Found {
        let state = self.state.lock();
        let Some(id) = state.find(address) else {
            return Found::Unknown;
        };
        let block = state.slab.at(id);
        let requested = match (block.state, &self.thread_cache) {
            (BlockState::Live, _) => Some(block.requested),
            // What a thread has at hand, or got back, stays with it.
            (BlockState::InThreadCache, Some(thread_cache)) => thread_cache.requested(&state, id),
            _ => None,
        };
        requested.map_or(Found::Free, |requested| {
            Found::Live(block.address, requested)
        })
    }

    /// Bytes of the largest block that is free on a device, whatever still has to be waited for. Walks all
    /// blocks under the lock: for when a request could not be met.
    pub fn largest_free(&self, device: i32) -> u64 {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::Idle);
        let on_device = |index: u32| {
            let arena = state.arenas.get(index as usize)?.as_ref()?;
            Some(state.devices.get(arena.device)?.ordinal == device)
        };
        let blocks = state.map.values().map(|id| state.slab.at(*id));
        let free = blocks.filter(|block| {
            block.state == BlockState::Cached
                && !block.exported
                && on_device(block.arena) == Some(true)
        });
        free.map(|block| block.size).max().unwrap_or(0)
    }

    /// What the pool holds and did, on one device or on all.
    pub fn stats(&self, device: Option<i32>) -> Stats {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::Figures);
        Self::total(&state, device)
    }

    /// Bytes held from the driver on a device and not handed out, nor on their way into the driver's hands: never
    /// more than what the driver told to be free before lacks.
    pub fn cached_bytes(&self, device: i32) -> u64 {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::Figures);
        let of_device = state.devices.iter().filter(|one| one.ordinal == device);
        let told: u64 = of_device.map(|one| one.told).sum();
        let cached = Self::total(&state, Some(device)).cached();
        cached.saturating_sub(told)
    }

    /// How often memory of a device went back to the driver; `None` while the driver is being told of some, and the
    /// sum of what it has and what is cached says nothing.
    pub fn returns(&self, device: i32) -> Option<u64> {
        let state = self.state.lock();
        let mut of_device = state.devices.iter().filter(|one| one.ordinal == device);
        of_device.try_fold(0, |sum, one| {
            (one.told == 0).then_some(sum + one.stats.released)
        })
    }

    /// Bytes held from the driver on a device; `None` while another thread has the lock. For callers that must not wait.
    pub fn reserved_now(&self, device: i32) -> Option<u64> {
        let state = self.state.try_lock()?;
        Some(Self::total(&state, Some(device)).reserved)
    }

    pub(super) fn total(state: &State<D::Event>, device: Option<i32>) -> Stats {
        let mut total = Stats::default();
        for entry in state
            .devices
            .iter()
            .filter(|d| device.is_none_or(|ordinal| ordinal == d.ordinal))
        {
            total.add(&entry.stats);
        }
        total
    }

    pub(super) fn serials(&self, state: &State<D::Event>, device: Option<i32>) -> Vec<u64> {
        let on = |index: usize| state.devices.get(index).map(|d| d.ordinal);
        let arenas = state.arenas.iter().flatten();
        arenas
            .filter(|a| device.is_none() || on(a.device) == device)
            .map(|a| a.serial)
            .collect()
    }
}
