//! What the pool's lock protects. Nothing here calls the device.

use super::arena::{Arena, Peer};
use super::block::{Block, Id, NIL, Slab, State as BlockState};
use super::capture::Captures;
use super::device::{Address, Context};
use super::fences::{Events, Few};
use super::placement::{Found, Placement};
use super::segments::Map;
use super::stats::Stats;
use super::types::{FreeError, Freed, Grant, Settings, Source};
use std::collections::BTreeMap;

/// Mistakes that tests plant, to show that each would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutation {
    #[cfg(test)]
    None,
    /// Blocks are handed out whatever their fence.
    PromoteEarly,
    /// Only the owner's later work is ordered.
    OrderOwnerOnly,
    /// Fences do not cover other contexts of the device.
    NoNeighbours,
    /// Fences do not cover contexts that were given access.
    NoPeers,
    /// A context that joins late is not ordered after what others were.
    NoCatchUp,
    /// Access that was taken away is forgotten at once.
    ForgetPeers,
    /// What is freed under a capture goes to the cache.
    NoQuarantine,
    /// A block does not know which group it was handed out under.
    NoGroup,
    /// Graphs hold nothing.
    NoGraphs,
    /// Graphs made from graphs hold nothing.
    NoDerived,
    /// A block in two groups is returned with the first.
    NoHoldBack,
    /// Fence calls are made under a capture.
    FenceUnderCapture,
    /// Memory goes back under a capture.
    ReleaseUnderCapture,
    /// A mark does not end the open fence.
    OpenMark,
    /// A synchronised context is taken for all that the fence covers.
    MarkDespitePeers,
    /// Memory goes back while other contexts may use it.
    ReleaseForeign,
    /// Events of a context that is gone are kept.
    KeepEvents,
}

impl Mutation {
    #[cfg(test)]
    pub const ALL: [Mutation; 17] = [
        Mutation::PromoteEarly,
        Mutation::OrderOwnerOnly,
        Mutation::NoNeighbours,
        Mutation::NoPeers,
        Mutation::NoCatchUp,
        Mutation::ForgetPeers,
        Mutation::NoQuarantine,
        Mutation::NoGroup,
        Mutation::NoGraphs,
        Mutation::NoDerived,
        Mutation::NoHoldBack,
        Mutation::FenceUnderCapture,
        Mutation::ReleaseUnderCapture,
        Mutation::OpenMark,
        Mutation::MarkDespitePeers,
        Mutation::ReleaseForeign,
        Mutation::KeepEvents,
    ];
}

/// What is known of one device.
pub(super) struct DeviceState {
    pub ordinal: i32,
    pub stats: Stats,
    /// Bytes being asked of the driver.
    pub growing: u64,
    /// Bytes on their way back to the driver, still counted as reserved.
    pub releasing: u64,
}

impl DeviceState {
    /// Bytes cached beyond what may be.
    #[inline]
    pub fn surplus(&self, cache_max: Option<u64>) -> u64 {
        let Some(max) = cache_max else { return 0 };
        let held = self.stats.reserved.saturating_sub(self.releasing);
        let kept = self.stats.allocated + self.stats.quarantined;
        held.saturating_sub(kept).saturating_sub(max)
    }
}

/// A driver allocation on its way back.
pub(super) struct Victim {
    pub arena: u64,
    pub device: usize,
    pub context: Context,
    pub address: Address,
    pub bytes: u64,
}

/// The contexts whose work may reach an arena's memory.
pub(super) struct Cover {
    pub contexts: Few<Context>,
    /// There are others than the owner: giving memory back does not wait for them (measured on an
    /// H200: `cuMemFree` waits for the context of the allocation only).
    pub foreign: bool,
}

/// What has to follow a free.
pub(super) enum After {
    Nothing,
    /// The arena's contexts are to be waited for.
    Synchronize(u64),
    /// The block goes to the driver.
    Release(Victim),
    /// The device's cache is larger than it may be.
    Shrink(usize),
}

pub(super) struct State<E> {
    pub settings: Settings,
    pub slab: Slab,
    pub map: Map,
    /// Driver allocations by address, with their size.
    pub ranges: BTreeMap<Address, u64>,
    pub arenas: Vec<Option<Arena<E>>>,
    pub devices: Vec<DeviceState>,
    pub captures: Captures,
    /// Calls in flight that would invalidate a capture.
    pub calls: usize,
    /// The housekeeper's clock.
    pub tick: u32,
    /// Counts changes to who may reach whose memory.
    pub version: u64,
    /// Contexts whose later work has not been ordered after what an arena's was.
    pub behind: Vec<(Context, u64)>,
    /// Memory that goes back to the driver as soon as no stream captures.
    pub doomed: Vec<Victim>,
    /// Shards of the front that have something, a bit each.
    pub lent: u64,
    /// Events that a call in flight may still use.
    pub garbage: Vec<Events<E>>,
    serial: u64,
    #[cfg(test)]
    pub mutation: Mutation,
}

impl<E: Copy> State<E> {
    pub fn new(settings: Settings) -> Self {
        State {
            settings,
            slab: Slab::new(),
            map: Map::default(),
            ranges: BTreeMap::new(),
            arenas: Vec::new(),
            devices: Vec::new(),
            captures: Captures::default(),
            calls: 0,
            tick: 0,
            version: 0,
            behind: Vec::new(),
            doomed: Vec::new(),
            lent: 0,
            garbage: Vec::new(),
            serial: 0,
            #[cfg(test)]
            mutation: Mutation::None,
        }
    }

    /// Whether a test planted this mistake.
    #[inline(always)]
    pub fn planted(&self, mutation: Mutation) -> bool {
        #[cfg(test)]
        return self.mutation == mutation;
        #[cfg(not(test))]
        {
            let _ = mutation;
            false
        }
    }

    /// The arena of a context, by index.
    #[inline]
    pub fn index_of(&self, context: Context) -> Option<usize> {
        self.arenas
            .iter()
            .position(|arena| arena.as_ref().is_some_and(|a| a.context == context))
    }

    /// The arena with a serial number, by index.
    pub fn index(&self, serial: u64) -> Option<usize> {
        self.arenas
            .iter()
            .position(|arena| arena.as_ref().is_some_and(|a| a.serial == serial))
    }

    pub fn arena(&self, serial: u64) -> Option<&Arena<E>> {
        self.arenas
            .iter()
            .flatten()
            .find(|arena| arena.serial == serial)
    }

    pub fn arena_mut(&mut self, serial: u64) -> Option<&mut Arena<E>> {
        self.arenas
            .iter_mut()
            .flatten()
            .find(|arena| arena.serial == serial)
    }

    pub fn device_mut(&mut self, index: usize) -> Option<&mut DeviceState> {
        self.devices.get_mut(index)
    }

    /// Takes in a context. Returns the serial number of its arena.
    pub fn add_arena(&mut self, context: Context, ordinal: i32) -> u64 {
        if let Some(arena) = self
            .arenas
            .iter()
            .flatten()
            .find(|arena| arena.context == context)
        {
            return arena.serial;
        }
        let device = self
            .devices
            .iter()
            .position(|d| d.ordinal == ordinal)
            .unwrap_or_else(|| {
                self.devices.push(DeviceState {
                    ordinal,
                    stats: Stats::default(),
                    growing: 0,
                    releasing: 0,
                });
                self.devices.len() - 1
            });
        self.serial += 1;
        self.version += 1;
        for neighbour in self
            .arenas
            .iter()
            .flatten()
            .filter(|arena| arena.device == device)
        {
            self.behind.push((context, neighbour.serial));
        }
        let placement = Placement::new(self.settings.policy, self.settings.slack);
        let arena = Some(Arena::new(context, self.serial, device, placement));
        match self.arenas.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = arena,
            None => self.arenas.push(arena),
        }
        self.serial
    }

    /// The contexts whose work may reach an arena's memory: its own, those on the same device, and
    /// those that were given access.
    pub fn cover(&self, serial: u64) -> Cover {
        let mut cover = Cover {
            contexts: Few::new(),
            foreign: false,
        };
        let Some(arena) = self.arena(serial) else {
            return cover;
        };
        cover.contexts.push(arena.context);
        let near = |context: Context| {
            let mut arenas = self.arenas.iter().flatten();
            arenas.any(|a| a.context == context && a.device == arena.device)
        };
        for other in self.arenas.iter().flatten() {
            if self.planted(Mutation::NoNeighbours) {
                break;
            }
            if other.serial != serial && other.device == arena.device {
                cover.contexts.push(other.context);
                cover.foreign = true;
            }
        }
        for accessor in arena.accessors().filter(|accessor| !near(*accessor)) {
            if self.planted(Mutation::NoPeers) {
                break;
            }
            cover.contexts.push(accessor);
            cover.foreign = true;
        }
        cover
    }

    /// A ready block of the context, if there is one.
    #[inline]
    pub fn take(&mut self, index: usize, bytes: u64, source: Source) -> Result<Grant, Found> {
        let early = self.planted(Mutation::PromoteEarly);
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return Err(Found::Nothing);
        };
        let ready = if early {
            u64::MAX
        } else {
            arena.fences.ready()
        };
        match arena
            .placement
            .take(&mut self.slab, &mut self.map, bytes, ready)
        {
            Found::Ready(id) => Ok(self.grant(index, id, bytes, source)),
            other => Err(other),
        }
    }

    /// The same, but the block may be larger than the slack allows.
    pub fn take_loosely(
        &mut self,
        index: usize,
        bytes: u64,
        source: Source,
    ) -> Result<Grant, Found> {
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return Err(Found::Nothing);
        };
        let ready = arena.fences.ready();
        let found = arena
            .placement
            .take_loosely(&mut self.slab, &mut self.map, bytes, ready);
        match found {
            Found::Ready(id) => Ok(self.grant(index, id, bytes, source)),
            other => Err(other),
        }
    }

    #[inline]
    fn grant(&mut self, index: usize, id: Id, bytes: u64, source: Source) -> Grant {
        let tagged = !self.planted(Mutation::NoGroup);
        let block = self.slab.at_mut(id);
        block.state = BlockState::Live;
        block.requested = bytes;
        block.group = if tagged { self.captures.current() } else { 0 };
        let grant = Grant {
            address: block.address,
            requested: bytes,
            size: block.size,
            source,
        };
        if let Some(Some(arena)) = self.arenas.get_mut(index) {
            arena.allocated(grant.size);
            if let Some(device) = self.devices.get_mut(arena.device) {
                let stats = &mut device.stats;
                stats.allocated += grant.size;
                stats.requested += bytes;
                stats.peak_allocated = stats.peak_allocated.max(stats.allocated);
                stats.peak_requested = stats.peak_requested.max(stats.requested);
                stats.live += 1;
                match source {
                    Source::Hit => stats.hits += 1,
                    Source::Ordered => stats.ordered += 1,
                    Source::Waited => stats.waited += 1,
                    Source::Grown => stats.grown += 1,
                }
            }
        }
        grant
    }

    /// Takes in a driver allocation and hands out the block that it was made for. `None`: the
    /// context is gone.
    pub fn grown(&mut self, serial: u64, address: Address, size: u64, bytes: u64) -> Option<Grant> {
        let index = self.index(serial)?;
        let id = self.slab.insert(Block::new(address, size, index as u32))?;
        self.map.insert(address, id);
        self.ranges.insert(address, size);
        let arena = self.arenas.get_mut(index)?.as_mut()?;
        arena.reserved += size;
        arena
            .placement
            .grown(&mut self.slab, &mut self.map, id, bytes);
        if let Some(device) = self.devices.get_mut(arena.device) {
            let stats = &mut device.stats;
            stats.reserved += size;
            stats.peak_reserved = stats.peak_reserved.max(stats.reserved);
        }
        Some(self.grant(index, id, bytes, Source::Grown))
    }

    /// Takes a block back from the caller.
    #[inline]
    pub fn free<X>(
        &mut self,
        address: Address,
        strict: bool,
        seen: impl FnOnce(&Freed),
    ) -> Result<After, FreeError<X>> {
        let id = *self.map.get(&address).ok_or(FreeError::Unknown)?;
        let quarantine = !self.planted(Mutation::NoQuarantine);
        let block = self.slab.at_mut(id);
        if block.state != BlockState::Live {
            return Err(FreeError::NotLive);
        }
        let Some(Some(arena)) = self.arenas.get_mut(block.arena as usize) else {
            return Err(FreeError::Unknown);
        };
        let Some(device) = self.devices.get_mut(arena.device) else {
            return Err(FreeError::Unknown);
        };
        let (size, requested) = (block.size, block.requested);
        let (context, serial) = (arena.context, arena.serial);
        seen(&Freed {
            address,
            requested,
            size,
            context,
            device: device.ordinal,
        });
        arena.allocated = arena.allocated.saturating_sub(size);
        let stats = &mut device.stats;
        stats.allocated = stats.allocated.saturating_sub(size);
        stats.requested = stats.requested.saturating_sub(requested);
        stats.live = stats.live.saturating_sub(1);
        stats.freed += 1;
        block.tick = self.tick;
        if quarantine && self.captures.quarantine(id, block.group) {
            block.state = BlockState::Quarantined;
            stats.quarantined += size;
            return Ok(After::Nothing);
        }
        let whole = matches!(arena.placement, Placement::Whole(_));
        if block.exported && whole {
            return Ok(After::Release(self.drop_block(id)));
        }
        block.state = BlockState::Cached;
        block.fence = arena.fences.join();
        arena.placement.insert(&mut self.slab, id);
        if strict {
            return Ok(After::Synchronize(serial));
        }
        let surplus = device.surplus(self.settings.cache_max);
        if surplus > 0 {
            return Ok(After::Shrink(arena.device));
        }
        Ok(After::Nothing)
    }

    /// Forgets a whole driver allocation that is in no list. It counts as reserved until released.
    pub fn drop_block(&mut self, id: Id) -> Victim {
        let block = self.slab.at(id);
        let (address, bytes, index) = (block.address, block.size, block.arena as usize);
        self.map.remove(&address);
        self.ranges.remove(&address);
        self.slab.remove(id);
        let mut victim = Victim {
            arena: 0,
            device: usize::MAX,
            context: Context(0),
            address,
            bytes,
        };
        if let Some(Some(arena)) = self.arenas.get(index) {
            victim.arena = arena.serial;
            victim.context = arena.context;
            victim.device = arena.device;
            if let Some(device) = self.devices.get_mut(arena.device) {
                device.releasing += bytes;
            }
        }
        victim
    }

    /// A driver allocation could not go back after all. It is lost, and stays reserved.
    pub fn not_released(&mut self, victim: &Victim) {
        if let Some(device) = self.devices.get_mut(victim.device) {
            device.releasing = device.releasing.saturating_sub(victim.bytes);
        }
    }

    /// A driver allocation has gone back.
    pub fn released(&mut self, victim: &Victim) {
        let Some(device) = self.devices.get_mut(victim.device) else {
            return;
        };
        device.releasing = device.releasing.saturating_sub(victim.bytes);
        let mut arenas = self.arenas.iter_mut().flatten();
        if let Some(arena) = arenas.find(|arena| arena.serial == victim.arena) {
            arena.reserved = arena.reserved.saturating_sub(victim.bytes);
            device.stats.reserved = device.stats.reserved.saturating_sub(victim.bytes);
            device.stats.released += 1;
            device.stats.released_bytes += victim.bytes;
        }
    }

    /// Whether work has to be waited for before an arena's memory can go back: other devices may be
    /// using it, for which giving it back does not wait; or, to `merge`, parts of segments wait for
    /// their fence.
    pub fn must_synchronize(&self, serial: u64, merge: bool) -> bool {
        let Some(arena) = self.arena(serial) else {
            return false;
        };
        let fences = &arena.fences;
        if let Placement::Split(segments) = &arena.placement
            && merge
            && segments
                .newest_pending(&self.slab)
                .is_some_and(|fence| fence > fences.complete())
        {
            return true;
        }
        let all_complete = !fences.is_joined() && fences.complete() + 1 >= fences.open();
        let foreign = self.cover(serial).foreign && !self.planted(Mutation::ReleaseForeign);
        arena.placement.oldest(&self.slab).is_some() && !all_complete && foreign
    }

    /// Merges what has become ready. Segments whose address left the process are doomed once they
    /// are wholly free.
    pub fn promote(&mut self, index: usize) {
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return;
        };
        let Placement::Split(segments) = &mut arena.placement else {
            return;
        };
        segments.promote(&mut self.slab, &mut self.map, arena.fences.ready());
        for id in std::mem::take(&mut segments.leaving) {
            let victim = self.drop_block(id);
            self.doomed.push(victim);
        }
    }

    /// Takes out an arena's oldest cached driver allocations, until they are so many bytes: all, or
    /// only those whose work is complete and which were freed so many ticks ago.
    pub fn evict(&mut self, serial: u64, bytes: u64, age: Option<u32>) -> Vec<Victim> {
        let mut victims = Vec::new();
        let foreign = self.cover(serial).foreign && !self.planted(Mutation::ReleaseForeign);
        let Some(index) = self.index(serial) else {
            return victims;
        };
        let mut sum = 0;
        self.promote(index);
        while sum < bytes {
            let Some(Some(arena)) = self.arenas.get_mut(index) else {
                break;
            };
            let Some(oldest) = arena.placement.oldest(&self.slab) else {
                break;
            };
            let block = self.slab.at(oldest);
            let idle = self.tick.wrapping_sub(block.tick);
            let complete = block.fence <= arena.fences.complete();
            if (foreign || age.is_some()) && !complete || age.is_some_and(|age| idle < age) {
                break;
            }
            sum += block.size;
            let Some(id) = arena.placement.evict(&mut self.slab) else {
                break;
            };
            victims.push(self.drop_block(id));
        }
        victims
    }

    /// Blocks that no graph holds any more become ordinary free blocks.
    pub fn return_blocks(&mut self, ids: Vec<Id>) {
        let hold_back = !self.planted(Mutation::NoHoldBack);
        for id in ids {
            let block = self.slab.at_mut(id);
            if hold_back && self.captures.hold_back(id, block.group) {
                continue;
            }
            let (index, size) = (block.arena as usize, block.size);
            block.group = 0;
            block.state = BlockState::Cached;
            let Some(Some(arena)) = self.arenas.get_mut(index) else {
                continue;
            };
            block.fence = arena.fences.join();
            if let Some(device) = self.devices.get_mut(arena.device) {
                device.stats.quarantined = device.stats.quarantined.saturating_sub(size);
            }
            if block.exported && matches!(arena.placement, Placement::Whole(_)) {
                let victim = self.drop_block(id);
                self.doomed.push(victim);
            } else {
                arena.placement.insert(&mut self.slab, id);
            }
        }
    }

    /// The block that contains an address.
    pub fn find(&self, address: Address) -> Option<Id> {
        if let Some(id) = self.map.get(&address) {
            return Some(*id);
        }
        let (base, bytes) = self.ranges.range(..=address).next_back()?;
        if address - base >= *bytes {
            return None;
        }
        let mut id = *self.map.get(base)?;
        while id != NIL {
            let block = self.slab.at(id);
            if address < block.address.saturating_add(block.size) {
                return Some(id);
            }
            id = block.right;
        }
        None
    }

    /// Fences up to this one are complete.
    pub fn completed(&mut self, serial: u64, id: u64) {
        if let Some(Some(arena)) = self.index(serial).and_then(|i| self.arenas.get_mut(i)) {
            arena.fences.completed(id, &mut self.garbage);
        }
    }

    pub fn peer_enabled(&mut self, accessor: Context, owner: u64) {
        let Some(arena) = self.arena_mut(owner) else {
            return;
        };
        match arena.peers.iter_mut().find(|peer| peer.context == accessor) {
            Some(peer) => peer.until = None,
            None => arena.peers.push(Peer {
                context: accessor,
                until: None,
            }),
        }
        self.version += 1;
        self.behind.push((accessor, owner));
    }

    pub fn peer_disabled(&mut self, accessor: Context, owner: Context) {
        let forget = self.planted(Mutation::ForgetPeers);
        for arena in self
            .arenas
            .iter_mut()
            .flatten()
            .filter(|arena| arena.context == owner)
        {
            let open = arena.fences.open();
            for peer in arena
                .peers
                .iter_mut()
                .filter(|peer| peer.context == accessor)
            {
                peer.until = Some(if forget { 0 } else { open });
            }
        }
    }

    /// Forgets a context that no longer exists, and all that it held. Returns the bytes
    /// that were handed out and held in it.
    pub fn context_gone(&mut self, context: Context) -> (u64, u64) {
        let keep_events = self.planted(Mutation::KeepEvents);
        for arena in self.arenas.iter_mut().flatten() {
            if !keep_events {
                arena.fences.forget(context);
            }
            arena.peers.retain(|peer| peer.context != context);
        }
        self.garbage
            .iter_mut()
            .for_each(|events| events.retain(|(of, _)| *of != context));
        let Some(index) = self.index_of(context) else {
            return (0, 0);
        };
        let Some(arena) = self.arenas.get_mut(index).and_then(Option::take) else {
            return (0, 0);
        };
        let State {
            slab,
            map,
            ranges,
            captures,
            ..
        } = self;
        let ours = |id: Id| slab.at(id).arena as usize == index;
        captures.forget(ours);
        let (mut live, mut requested, mut quarantined, mut gone) = (0, 0, 0, Vec::new());
        map.retain(|address, id| {
            let block = slab.at(*id);
            if block.arena as usize != index {
                return true;
            }
            match block.state {
                BlockState::Live => (live, requested) = (live + 1, requested + block.requested),
                BlockState::Quarantined => quarantined += block.size,
                BlockState::Cached | BlockState::Lent => {}
            }
            ranges.remove(address);
            gone.push(*id);
            false
        });
        for id in gone {
            slab.remove(id);
        }
        let mut releasing = 0;
        self.doomed.retain(|victim| {
            let ours = victim.arena == arena.serial;
            releasing += if ours { victim.bytes } else { 0 };
            !ours
        });
        self.behind
            .retain(|(of, serial)| *of != context && *serial != arena.serial);
        if let Some(device) = self.devices.get_mut(arena.device) {
            let stats = &mut device.stats;
            stats.allocated = stats.allocated.saturating_sub(arena.allocated);
            stats.requested = stats.requested.saturating_sub(requested);
            stats.reserved = stats.reserved.saturating_sub(arena.reserved);
            stats.quarantined = stats.quarantined.saturating_sub(quarantined);
            stats.live = stats.live.saturating_sub(live);
            device.releasing = device.releasing.saturating_sub(releasing);
        }
        let (allocated, reserved) = (arena.allocated, arena.reserved);
        self.garbage.extend(arena.fences.into_events());
        (allocated, reserved)
    }
}
