//! The pool: the lock, and the calls to the device between two holdings of it.

use super::TICKS_TO_DECAY;
use super::ask::{Ask, Step};
use super::block::{Id, State as BlockState};
use super::class::PAGE;
use super::device::{Address, Context, Device};
use super::fences::{Events, Few};
use super::front::{Call, Front};
use super::placement::Placement;
use super::state::{After, Cover, Mutation, State, Victim};
use super::stats::Stats;
use super::types::{FreeError, Freed, Grant, Mark, Settings, Source};
use super::{Policy, Reuse};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a capture that begins waits for calls in flight that would invalidate it. One that
/// takes longer waits for the device; the capture must not wait for ever.
const CAPTURE_PATIENCE: Duration = Duration::from_secs(2);

/// How long a request waits for memory that another thread is giving back.
const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

/// Events that are kept until nobody can be using them, before they are given back together.
const GARBAGE: usize = 16;

/// The device's part that is left free: one in so many bytes, and at least [`MARGIN_FLOOR`].
const MARGIN_PART: u64 = 100;
const MARGIN_FLOOR: u64 = 256 << 20;

/// A caching allocator of device memory over a [`Device`].
pub struct Pool<D: Device> {
    device: D,
    strict: bool,
    margin: Option<u64>,
    /// Serves hits thread by thread; what it does not, `state` does.
    front: Option<Front>,
    /// How requests are rounded, for the front.
    rounding: Placement,
    state: Mutex<State<D::Event>>,
    /// Calls in flight have returned, or memory has gone back.
    changed: Condvar,
}

type Guard<'a, D> = MutexGuard<'a, State<<D as Device>::Event>>;

/// What may be given back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Anything cached, after waiting for its work if need be.
    Any,
    /// What can go back whole as it is.
    Surplus,
    /// What is complete and was freed so many ticks ago.
    Old(u32),
}

impl<D: Device> Pool<D> {
    /// A pool without any memory.
    pub fn new(device: D, settings: Settings) -> Self {
        let apart = settings.front
            && matches!(settings.policy, Policy::Blocks | Policy::Bins)
            && settings.reuse != Reuse::Strict
            && settings.cache_max.is_none();
        Pool {
            device,
            front: apart.then(Front::new),
            rounding: Placement::new(settings.policy, settings.slack),
            strict: settings.reuse == Reuse::Strict,
            margin: settings.margin,
            state: Mutex::new(State::new(settings)),
            changed: Condvar::new(),
        }
    }

    /// Plants a mistake.
    #[cfg(test)]
    pub(super) fn plant(&self, mutation: Mutation) {
        self.state.lock().mutation = mutation;
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
    fn take(&self, context: Context, bytes: u64) -> Result<Grant, Guard<'_, D>> {
        let Some(front) = &self.front else {
            let mut state = self.state.lock();
            return match state.index_of(context) {
                Some(index) => state.take(index, bytes, Source::Hit).map_err(|_| state),
                None => Err(state),
            };
        };
        let size = self.rounding.growth(bytes);
        if let Some(grant) = front.take(context, bytes, size) {
            return Ok(grant);
        }
        self.take_behind(front, context, bytes, size)
    }

    /// As [`Pool::take`], when the front has nothing: from the pool, and with a loan for the front.
    #[inline(never)]
    fn take_behind(
        &self,
        front: &Front,
        context: Context,
        bytes: u64,
        size: u64,
    ) -> Result<Grant, Guard<'_, D>> {
        let mut state = self.state.lock();
        let Some(index) = state.index_of(context) else {
            return Err(state);
        };
        front.call_in_own(&mut state);
        match state.take(index, bytes, Source::Hit) {
            Ok(grant) => {
                front.adopt(&mut state, &grant, size);
                Ok(grant)
            }
            Err(_) => Err(state),
        }
    }

    /// A block of at least `bytes` bytes, aligned to 512 bytes.
    ///
    /// # Errors
    /// The driver's, verbatim, after everything cached has been given back to it if it ran out of
    /// memory; [`Device::OUT_OF_MEMORY`] beyond [`Settings::limit`].
    #[inline(always)]
    pub fn allocate(&self, context: Context, bytes: u64) -> Result<Grant, D::Error> {
        match self.take(context, bytes) {
            Ok(grant) => Ok(grant),
            Err(state) => self.allocate_behind(state, context, bytes),
        }
    }

    /// As [`Pool::allocate`], when no block is ready: first of all other threads' are called in.
    #[cold]
    fn allocate_behind<'a>(
        &'a self,
        mut state: Guard<'a, D>,
        context: Context,
        bytes: u64,
    ) -> Result<Grant, D::Error> {
        let Some(front) = &self.front else {
            return self.allocate_slowly(&mut state, context, bytes);
        };
        // What other threads have back joins the fence that this request may have to close.
        front.call_in(&mut state, Call::Back);
        let grant = self.allocate_slowly(&mut state, context, bytes)?;
        front.adopt(&mut state, &grant, self.rounding.growth(bytes));
        Ok(grant)
    }

    /// Calls in from the front.
    fn call_in(&self, state: &mut State<D::Event>, what: Call) {
        if let Some(front) = &self.front {
            front.call_in(state, what);
        }
    }

    #[cold]
    fn allocate_slowly(
        &self,
        state: &mut Guard<'_, D>,
        context: Context,
        bytes: u64,
    ) -> Result<Grant, D::Error> {
        let serial = self.arena(state, context)?;
        self.settle(state);
        let mut ask = Ask::new(bytes, serial);
        loop {
            match state.step(&mut ask) {
                Step::Done(grant) => return Ok(grant),
                Step::Query(id, events) => {
                    let complete = self.outside(state, |device| {
                        events
                            .iter()
                            .all(|(_, event)| matches!(device.is_complete(*event), Ok(true)))
                    });
                    if complete {
                        state.completed(serial, id);
                    } else {
                        ask.incomplete = id;
                    }
                }
                Step::Record(id, contexts, later, version) => {
                    match self.record(state, serial, id, &contexts, later.as_ref()) {
                        // It was closed just now: do not bother to ask whether it is complete.
                        Recorded::Yes => ask.incomplete = id,
                        Recorded::Ordered => {
                            ask.incomplete = id;
                            if version == state.version {
                                self.ordered(state, serial, id);
                                ask.source = Source::Ordered;
                            }
                        }
                        Recorded::Unsupported => {
                            ask.source = Source::Waited;
                            ask.unfenced = !self.synchronize(state, serial, id, &contexts);
                        }
                        Recorded::Failed => ask.unfenced = true,
                    }
                }
                Step::Order(id, events, contexts, version) => {
                    let done = self.outside(state, |device| {
                        contexts.iter().all(|context| {
                            events
                                .iter()
                                .all(|(_, event)| device.order(*context, *event).is_ok())
                        })
                    });
                    if !done {
                        ask.unfenced = true;
                    } else if version == state.version {
                        self.ordered(state, serial, id);
                        ask.source = Source::Ordered;
                    }
                }
                Step::Wait(id, events) => {
                    let done = self.outside(state, |device| {
                        events.iter().all(|(_, event)| device.wait(*event).is_ok())
                    });
                    if done {
                        state.completed(serial, id);
                        ask.source = Source::Waited;
                    } else {
                        ask.unfenced = true;
                    }
                }
                Step::Grow(size) => {
                    if !std::mem::replace(&mut ask.called_in, true) {
                        self.call_in(state, Call::Idle);
                        continue;
                    }
                    if let Some(grant) = self.grow(state, context, &mut ask, size)? {
                        return Ok(grant);
                    }
                }
                Step::Gone => {
                    let allocate = || self.device.allocate(context, bytes);
                    let address = MutexGuard::unlocked(state, allocate)?;
                    return Ok(Grant {
                        address,
                        requested: bytes,
                        size: bytes,
                        source: Source::Grown,
                    });
                }
            }
        }
    }

    /// One attempt at new memory. `Ok(None)`: something has changed, look again.
    fn grow(
        &self,
        state: &mut Guard<'_, D>,
        context: Context,
        ask: &mut Ask,
        size: u64,
    ) -> Result<Option<Grant>, D::Error> {
        let Some(device) = state.arena(ask.arena).map(|arena| arena.device) else {
            return Ok(None);
        };
        let (over_share, over_limit) = state.excess(ask, size);
        if over_share.max(over_limit) > 0 && !ask.loose {
            ask.loose = true;
            return Ok(None);
        }
        if over_share > 0 && !ask.shared {
            ask.shared = true;
            if self.give_back(state, ask.arena, over_share, Which::Surplus) > 0 {
                return Ok(None);
            }
        }
        if over_limit > 0 {
            if self.give_back_device(state, device, over_limit) > 0
                || self.reduce(state, ask, size)
                || self.pause(state, ask, device)
            {
                return Ok(None);
            }
            if let Some(device) = state.device_mut(device) {
                device.stats.out_of_memory += 1;
            }
            return Err(D::OUT_OF_MEMORY);
        }
        if let Some(device) = state.device_mut(device) {
            device.growing = device.growing.saturating_add(size);
        }
        let result = MutexGuard::unlocked(state, || self.device.allocate(context, size));
        if let Some(device) = state.device_mut(device) {
            device.growing = device.growing.saturating_sub(size);
        }
        match result {
            Ok(address) => {
                let grant = state.grown(ask.arena, address, size, ask.bytes);
                if size >= PAGE {
                    self.keep_margin(state, context, device);
                }
                let (requested, source) = (ask.bytes, Source::Grown);
                // Without its context the block is not kept: its free will be the driver's.
                Ok(Some(grant.unwrap_or(Grant {
                    address,
                    requested,
                    size,
                    source,
                })))
            }
            Err(error) if D::is_out_of_memory(error) => {
                while ask.scraped < 2 {
                    ask.scraped += 1;
                    let given = match ask.scraped {
                        1 => self.give_back(state, ask.arena, u64::MAX, Which::Any),
                        _ => self.give_back_device(state, device, u64::MAX),
                    };
                    if given > 0 {
                        return Ok(None);
                    }
                }
                if self.reduce(state, ask, size) || self.pause(state, ask, device) {
                    return Ok(None);
                }
                if let Some(device) = state.device_mut(device) {
                    device.stats.out_of_memory += 1;
                }
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Asks for no more than necessary from now on, if that is less.
    fn reduce(&self, state: &State<D::Event>, ask: &mut Ask, size: u64) -> bool {
        let less = !ask.exact && state.least(ask) < size;
        ask.exact |= less;
        less
    }

    /// Waits, once, for memory that other threads are giving back.
    fn pause(&self, state: &mut Guard<'_, D>, ask: &mut Ask, device: usize) -> bool {
        let releasing =
            |state: &State<D::Event>| state.devices.get(device).is_some_and(|d| d.releasing > 0);
        if ask.paused || state.captures.is_open() || !releasing(state) {
            return false;
        }
        ask.paused = true;
        self.changed
            .wait_while_for(state, |state| releasing(state), RELEASE_PATIENCE);
        true
    }

    /// Gives cached memory back until the device has its margin.
    fn keep_margin(&self, state: &mut Guard<'_, D>, context: Context, device: usize) {
        let info = MutexGuard::unlocked(state, || self.device.memory_info(context));
        if let Ok((free, total)) = info {
            let margin = self
                .margin
                .unwrap_or((total / MARGIN_PART).max(MARGIN_FLOOR));
            if free < margin {
                self.give_back_device(state, device, margin - free);
            }
        }
    }

    /// Takes a block back.
    ///
    /// `seen` runs under the lock, before the block can be handed out again.
    ///
    /// # Errors
    /// [`FreeError::Unknown`] if the driver has to answer, [`FreeError::NotLive`] for a block that
    /// is free already, the driver's error if the free needed it (`strict`, exported blocks).
    #[inline(always)]
    pub fn free(
        &self,
        address: Address,
        seen: impl FnOnce(&Freed),
    ) -> Result<(), FreeError<D::Error>> {
        match &self.front {
            Some(front) => match front.free(address, seen) {
                Ok(()) => Ok(()),
                Err(seen) => self.free_behind(address, seen),
            },
            None => self.free_behind(address, seen),
        }
    }

    /// As [`Pool::free`], when the front does not have the block.
    #[inline(never)]
    fn free_behind(
        &self,
        address: Address,
        seen: impl FnOnce(&Freed),
    ) -> Result<(), FreeError<D::Error>> {
        let mut state = self.state.lock();
        if let Some(front) = &self.front {
            front.call_in_own(&mut state);
            if let Some(&id) = state.map.get(&address)
                && state.slab.at(id).state == BlockState::Lent
                && !front.reclaim(&mut state, address, id)
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
    fn free_slowly<'a>(
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
                let id = arena.fences.close();
                let result = self.outside(&mut state, |device| {
                    contexts
                        .iter()
                        .try_for_each(|context| device.synchronize(*context))
                });
                result.map_err(FreeError::Driver)?;
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
    /// to the driver, with its whole segment.
    pub fn exported(&self, address: Address) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.call_in(state, Call::All);
        let Some(id) = state.find(address) else {
            return;
        };
        let arena = state.slab.at(id).arena as usize;
        match state.arenas.get_mut(arena) {
            Some(Some(arena)) => arena.placement.export(&mut state.slab, id),
            _ => state.slab.at_mut(id).exported = true,
        }
    }

    /// Base and requested bytes of the live block that contains an address.
    pub fn find(&self, address: Address) -> Option<(Address, u64)> {
        let mut state = self.state.lock();
        self.call_in(&mut state, Call::All);
        let block = state.slab.at(state.find(address)?);
        (block.state == BlockState::Live).then_some((block.address, block.requested))
    }

    /// Whether an address lies in memory that the pool keeps and nobody has: to the program it is free.
    pub fn is_free(&self, address: Address) -> bool {
        let mut state = self.state.lock();
        self.call_in(&mut state, Call::All);
        state
            .find(address)
            .is_some_and(|id| state.slab.at(id).state != BlockState::Live)
    }

    /// Gives cached memory back to the driver until at most `keep` bytes are cached, in all
    /// contexts or those of one device. Waits for work where it must. Returns the bytes given back;
    /// 0 while a stream captures.
    pub fn trim(&self, device: Option<i32>, keep: u64) -> u64 {
        let mut state = self.state.lock();
        self.call_in(&mut state, Call::Idle);
        let mut given = self.settle(&mut state);
        for serial in self.serials(&state, device) {
            let cached = Self::total(&state, device).cached;
            if cached <= keep {
                break;
            }
            given += self.give_back(&mut state, serial, cached - keep, Which::Any);
        }
        given
    }

    /// One tick of the housekeeper's clock: what was freed [`TICKS_TO_DECAY`] ticks ago and not
    /// asked for since goes back, if its work has finished. Returns the bytes given back; does
    /// nothing while a stream captures.
    pub fn decay(&self) -> u64 {
        let mut state = self.state.lock();
        if state.captures.is_open() {
            return 0;
        }
        self.call_in(&mut state, Call::Idle);
        state.tick = state.tick.wrapping_add(1);
        if state.tick.is_multiple_of(TICKS_TO_DECAY) {
            state
                .arenas
                .iter_mut()
                .flatten()
                .for_each(|arena| arena.roll());
        }
        let mut given = self.settle(&mut state);
        for serial in self.serials(&state, None) {
            self.look_for_complete(&mut state, serial);
            given += self.give_back(&mut state, serial, u64::MAX, Which::Old(TICKS_TO_DECAY));
        }
        self.sweep(&mut state, 1);
        given
    }

    /// Finds out what is complete, without waiting for it.
    fn look_for_complete(&self, state: &mut Guard<'_, D>, serial: u64) {
        let last = state
            .arena(serial)
            .and_then(|a| a.fences.last().map(|(id, events)| (id, events.clone())));
        if let Some((id, events)) = last
            && !state.captures.is_open()
            && self.outside(state, |device| {
                events
                    .iter()
                    .all(|(_, event)| matches!(device.is_complete(*event), Ok(true)))
            })
        {
            state.completed(serial, id);
        }
        if state.captures.is_open() {
            return;
        }
        let cover = state.cover(serial);
        if let Some(arena) = state.arena_mut(serial)
            && arena.fences.is_joined()
        {
            let id = arena.fences.close();
            if matches!(
                self.record(state, serial, id, &cover.contexts, None),
                Recorded::Unsupported
            ) {
                self.synchronize(state, serial, id, &cover.contexts);
            }
        }
    }

    /// The context was destroyed or reset: forgets its blocks, fences and events. No driver call.
    /// Returns the bytes that were handed out and held in it.
    pub fn context_gone(&self, context: Context) -> (u64, u64) {
        let mut state = self.state.lock();
        self.call_in(&mut state, Call::All);
        let gone = state.context_gone(context);
        drop(state);
        self.changed.notify_all();
        gone
    }

    /// Takes note of a context, so that fences of its device cover its work. Contexts that allocate
    /// or take part in peer access are known without it.
    pub fn context_known(&self, context: Context) {
        let mut state = self.state.lock();
        if self.arena(&mut state, context).is_ok() {
            self.settle(&mut state);
        }
    }

    /// Work of `accessor` may reach memory of `owner` from now on. To be called before the caller
    /// can submit such work.
    pub fn peer_enabled(&self, accessor: Context, owner: Context) {
        let mut state = self.state.lock();
        if let Ok(owner) = self.arena(&mut state, owner) {
            // Where the accessor's device cannot be told it counts as another one.
            let _ = self.arena(&mut state, accessor);
            state.peer_enabled(accessor, owner);
            self.settle(&mut state);
        }
    }

    /// Work that `accessor` submits from now on cannot reach memory of `owner`.
    pub fn peer_disabled(&self, accessor: Context, owner: Context) {
        let mut state = self.state.lock();
        // What came back before belongs to fences that still cover the accessor.
        self.call_in(&mut state, Call::Back);
        state.peer_disabled(accessor, owner);
    }

    /// A point before a context is synchronised; see [`Pool::synchronized`].
    pub fn mark(&self, context: Context) -> Mark {
        let mut state = self.state.lock();
        self.call_in(&mut state, Call::Back);
        let index = state.index_of(context);
        let open = state.planted(Mutation::OpenMark);
        match index.and_then(|index| state.arenas.get_mut(index)) {
            Some(Some(arena)) if open => Mark {
                arena: arena.serial,
                fence: arena.fences.open(),
            },
            Some(Some(arena)) => Mark {
                arena: arena.serial,
                fence: arena.fences.close_if_joined(),
            },
            _ => Mark { arena: 0, fence: 0 },
        }
    }

    /// The context was synchronised after `mark`: what was freed before the mark is complete. Has
    /// no effect if other contexts may reach the memory.
    pub fn synchronized(&self, context: Context, mark: Mark) {
        let mut state = self.state.lock();
        let ours = state
            .arena(mark.arena)
            .is_some_and(|arena| arena.context == context);
        let alone = state.cover(mark.arena).contexts.is_single();
        if ours && (alone || state.planted(Mutation::MarkDespitePeers)) {
            state.completed(mark.arena, mark.fence);
            self.sweep(&mut state, GARBAGE);
        }
    }

    /// A stream is about to capture. Returns when no call is in flight that would invalidate it.
    pub fn capture_began(&self) {
        let mut state = self.state.lock();
        state.captures.began();
        if let Some(front) = &self.front {
            front.close(&mut state);
        }
        self.changed
            .wait_while_for(&mut state, |state| state.calls > 0, CAPTURE_PATIENCE);
    }

    /// A capture ended in `graph`, or in nothing.
    pub fn capture_ended(&self, graph: Option<u64>) {
        let mut state = self.state.lock();
        let graph = graph.filter(|_| !state.planted(Mutation::NoGraphs));
        let blocks = state.captures.ended(graph);
        if let Some(front) = &self.front
            && !state.captures.is_open()
        {
            front.open();
        }
        self.returned(&mut state, blocks);
    }

    /// `to` was instantiated, cloned or updated from `from`, or contains it: it holds what `from`
    /// holds.
    pub fn graph_derived(&self, from: u64, to: u64) {
        let mut state = self.state.lock();
        if !state.planted(Mutation::NoDerived) {
            state.captures.derived(from, to);
        }
    }

    /// A graph or an instance of one was destroyed.
    pub fn graph_destroyed(&self, graph: u64) {
        let mut state = self.state.lock();
        let blocks = state.captures.destroyed(graph);
        self.returned(&mut state, blocks);
    }

    /// What the pool holds and did, on one device or on all.
    pub fn stats(&self, device: Option<i32>) -> Stats {
        let mut state = self.state.lock();
        self.call_in(&mut state, Call::Figures);
        Self::total(&state, device)
    }

    /// Bytes held from the driver on a device and not handed out.
    pub fn cached_bytes(&self, device: i32) -> u64 {
        self.stats(Some(device)).cached
    }

    fn total(state: &State<D::Event>, device: Option<i32>) -> Stats {
        let mut total = Stats::default();
        for entry in state
            .devices
            .iter()
            .filter(|d| device.is_none_or(|ordinal| ordinal == d.ordinal))
        {
            total.add(&entry.stats);
        }
        total.cached = total.reserved.saturating_sub(total.allocated);
        total
    }

    fn serials(&self, state: &State<D::Event>, device: Option<i32>) -> Vec<u64> {
        let on = |index: usize| state.devices.get(index).map(|d| d.ordinal);
        let arenas = state.arenas.iter().flatten();
        arenas
            .filter(|a| device.is_none() || on(a.device) == device)
            .map(|a| a.serial)
            .collect()
    }

    /// The arena of a context, made if there is none.
    fn arena(&self, state: &mut Guard<'_, D>, context: Context) -> Result<u64, D::Error> {
        if let Some(Some(arena)) = state
            .index_of(context)
            .and_then(|index| state.arenas.get(index))
        {
            return Ok(arena.serial);
        }
        let ordinal = MutexGuard::unlocked(state, || self.device.ordinal(context))?;
        Ok(state.add_arena(context, ordinal))
    }

    /// A call to the device that would invalidate a capture. Only to be made while none is open.
    fn outside<R>(&self, state: &mut Guard<'_, D>, call: impl FnOnce(&D) -> R) -> R {
        state.calls += 1;
        let result = MutexGuard::unlocked(state, || call(&self.device));
        state.calls -= 1;
        if state.calls == 0 {
            if state.captures.is_open() {
                self.changed.notify_all();
            }
            self.sweep(state, GARBAGE);
        }
        result
    }

    /// Notes that later work of all contexts concerned waits for a fence.
    fn ordered(&self, state: &mut State<D::Event>, serial: u64, id: u64) {
        if let Some(Some(arena)) = state.index(serial).and_then(|i| state.arenas.get_mut(i)) {
            arena.fences.ordered(id, &mut state.garbage);
        }
    }

    /// Gives events back that nobody uses, once there are so many of them.
    fn sweep(&self, state: &mut Guard<'_, D>, least: usize) {
        if state.calls > 0 || state.garbage.len() < least {
            return;
        }
        let garbage: Vec<Events<D::Event>> = std::mem::take(&mut state.garbage);
        MutexGuard::unlocked(state, || {
            for (_, event) in garbage.iter().flat_map(Few::iter) {
                self.device.retire(*event);
            }
        });
    }

    /// Records the events of a fence.
    fn record(
        &self,
        state: &mut Guard<'_, D>,
        serial: u64,
        id: u64,
        contexts: &Few<Context>,
        later: Option<&Few<Context>>,
    ) -> Recorded {
        let mut events = Few::new();
        let recorded = self.outside(state, |device| {
            for context in contexts.iter() {
                match device.record(*context) {
                    Ok(Some(event)) => events.push((*context, event)),
                    Ok(None) => return Recorded::Unsupported,
                    Err(_) => return Recorded::Failed,
                }
            }
            let Some(later) = later else {
                return Recorded::Yes;
            };
            let ordered = later.iter().all(|context| {
                let mut events = events.iter();
                events.all(|(_, event)| device.order(*context, *event).is_ok())
            });
            if ordered {
                Recorded::Ordered
            } else {
                Recorded::Failed
            }
        });
        let unneeded = match (&recorded, state.arena_mut(serial)) {
            (Recorded::Yes | Recorded::Ordered, Some(arena)) => arena.fences.recorded(id, events),
            _ => Some(events),
        };
        state.garbage.extend(unneeded);
        recorded
    }

    /// Waits for everything that the contexts have been given to do. A fence closed before that is
    /// complete then.
    fn synchronize(
        &self,
        state: &mut Guard<'_, D>,
        serial: u64,
        id: u64,
        contexts: &Few<Context>,
    ) -> bool {
        if state.captures.is_open() {
            return false;
        }
        let done = self.outside(state, |device| {
            contexts
                .iter()
                .all(|context| device.synchronize(*context).is_ok())
        });
        if done {
            state.completed(serial, id);
        }
        done
    }

    /// Does what had to wait: memory that is to go back, contexts that are to be ordered.
    /// Returns the bytes that went back.
    fn settle(&self, state: &mut Guard<'_, D>) -> u64 {
        let mut given = 0;
        while !state.captures.is_open() {
            if let Some(victim) = state.doomed.pop() {
                let bytes = victim.bytes;
                // A driver that refuses has lost its context: the memory is gone either way.
                given += self.release_exported(state, victim).map_or(0, |()| bytes);
            } else if let Some((context, serial)) = state.behind.pop() {
                let Some(arena) = state.arena(serial) else {
                    continue;
                };
                let Some(events) = arena.fences.last_ordered().cloned() else {
                    continue;
                };
                if state.planted(Mutation::NoCatchUp) {
                    continue;
                }
                self.outside(state, |device| {
                    for (_, event) in events.iter() {
                        if device.order(context, *event).is_err() {
                            // If waiting fails too, so does the work that would have needed it.
                            let _ = device.wait(*event);
                        }
                    }
                });
            } else {
                break;
            }
        }
        given
    }

    /// Gives back memory that was not waited for before.
    fn release_exported(&self, state: &mut Guard<'_, D>, victim: Victim) -> Result<(), D::Error> {
        let cover = state.cover(victim.arena);
        if cover.foreign {
            // The driver waits for the memory's own device only.
            let waited = self.outside(state, |device| {
                let mut contexts = cover.contexts.iter();
                contexts.try_for_each(|context| device.synchronize(*context))
            });
            if let Err(error) = waited {
                // Lost rather than pulled from under running work.
                state.not_released(&victim);
                return Err(error);
            }
        }
        let result = self.outside(state, |device| {
            device.release(victim.context, victim.address, victim.bytes)
        });
        state.released(&victim);
        self.changed.notify_all();
        result
    }

    fn release(&self, state: &mut Guard<'_, D>, victims: Vec<Victim>) -> u64 {
        let mut bytes = 0;
        for victim in victims {
            if state.captures.is_open() && !state.planted(Mutation::ReleaseUnderCapture) {
                state.doomed.push(victim);
                continue;
            }
            // A driver that refuses has lost its context: the memory is gone either way.
            let _ = self.outside(state, |device| {
                device.release(victim.context, victim.address, victim.bytes)
            });
            state.released(&victim);
            bytes += victim.bytes;
        }
        self.changed.notify_all();
        bytes
    }

    /// Gives an arena's oldest cached memory back, until it is so many bytes. Returns the bytes.
    fn give_back(&self, state: &mut Guard<'_, D>, serial: u64, bytes: u64, which: Which) -> u64 {
        if state.captures.is_open() && !state.planted(Mutation::ReleaseUnderCapture) {
            return 0;
        }
        let merge = which == Which::Any;
        if !matches!(which, Which::Old(_)) && state.must_synchronize(serial, merge) {
            let Cover { contexts, .. } = state.cover(serial);
            if let Some(arena) = state.arena_mut(serial) {
                let id = arena.fences.close();
                self.synchronize(state, serial, id, &contexts);
            }
            if state.captures.is_open() {
                return 0;
            }
        }
        let age = match which {
            Which::Any | Which::Surplus => None,
            Which::Old(ticks) => Some(ticks),
        };
        let victims = state.evict(serial, bytes, age);
        let mut given = if victims.is_empty() {
            0
        } else {
            self.release(state, victims)
        };
        if !state.doomed.is_empty() {
            given += state.doomed.iter().map(|victim| victim.bytes).sum::<u64>();
            self.settle(state);
        }
        given
    }

    /// Blocks came out of quarantine.
    fn returned(&self, state: &mut Guard<'_, D>, blocks: Vec<Id>) {
        state.return_blocks(blocks);
        self.settle(state);
        for device in 0..state.devices.len() {
            self.shrink(state, device);
        }
    }

    /// Gives a device's oldest cached memory back where it is more than may be.
    fn shrink(&self, state: &mut Guard<'_, D>, device: usize) {
        let max = state.settings.cache_max;
        let surplus = state
            .devices
            .get(device)
            .map_or(0, |device| device.surplus(max));
        if surplus > 0 {
            self.give_back_device(state, device, surplus);
        }
    }

    /// The same over all arenas of a device.
    fn give_back_device(&self, state: &mut Guard<'_, D>, device: usize, bytes: u64) -> u64 {
        let Some(ordinal) = state.devices.get(device).map(|device| device.ordinal) else {
            return 0;
        };
        let mut given = 0;
        for serial in self.serials(state, Some(ordinal)) {
            if given >= bytes {
                break;
            }
            given += self.give_back(state, serial, bytes - given, Which::Any);
        }
        given
    }
}

/// How recording a fence went.
enum Recorded {
    /// And later work waits for it.
    Ordered,
    Yes,
    /// The driver has no such events.
    Unsupported,
    Failed,
}
