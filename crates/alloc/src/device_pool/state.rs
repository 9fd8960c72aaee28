//! What the pool's lock protects. Nothing here calls the device.

use super::arena::Arena;
use super::block::{ByAddress, Id, Slab, State as BlockState};
use super::cached_blocks::CachedBlocks;
use super::departing::{Departing, Victim};
use super::fences::{Contexts, Events};
use super::types::Settings;
use crate::captures::Captures;
use crate::handles::{Address, Context};
use crate::rules;
use crate::stats::Stats;
use crate::types::Stamp;
use std::collections::BTreeMap;

/// What is known of one device.
pub(super) struct DeviceState {
    pub ordinal: i32,
    pub stats: Stats,
    /// Bytes on their way back to the driver, still counted as reserved.
    pub releasing: u64,
    /// Those of them that the driver is being told of: it may have them already.
    pub told: u64,
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

/// The contexts whose work may reach an arena's memory.
pub(super) struct Cover {
    pub contexts: Contexts,
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
    pub map: ByAddress,
    /// Bytes of the blocks, by where they begin in the order of addresses.
    pub ranges: BTreeMap<Address, u64>,
    pub arenas: Vec<Option<Arena<E>>>,
    pub devices: Vec<DeviceState>,
    pub captures: Captures,
    /// Calls in flight that would invalidate a capture.
    pub calls: usize,
    /// The background thread's clock, in ticks.
    pub tick: u32,
    /// The latest free.
    pub latest: Stamp,
    /// Counts the changes of which contexts may reach which memory.
    pub version: u64,
    /// Contexts whose later work has not been ordered after what an arena's was.
    pub behind: Vec<(Context, u64)>,
    /// Memory that goes back to the driver as soon as no stream captures.
    pub pending_release: Vec<Victim>,
    pub departing: Departing,
    /// Shards of the thread cache that have something, a bit each.
    pub in_caches: u64,
    /// Events that a call in flight may still use.
    pub garbage: Vec<Events<E>>,
    serial: u64,
}

impl<E: Copy> State<E> {
    pub fn new(settings: Settings) -> Self {
        State {
            settings,
            slab: Slab::new(),
            map: ByAddress::default(),
            ranges: BTreeMap::new(),
            arenas: Vec::new(),
            devices: Vec::new(),
            captures: Captures::default(),
            calls: 0,
            tick: 0,
            latest: Stamp::default(),
            version: 0,
            behind: Vec::new(),
            pending_release: Vec::new(),
            departing: Departing::default(),
            in_caches: 0,
            garbage: Vec::new(),
            serial: 0,
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

    /// Takes in a context that was `born` then. Returns the serial number of its arena.
    pub fn add_arena(&mut self, context: Context, born: u64, ordinal: i32) -> u64 {
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
                    releasing: 0,
                    told: 0,
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
        let cached = CachedBlocks::new(self.settings.slack);
        let arena = Some(Arena::new(context, born, self.serial, device, cached));
        match self.arenas.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = arena,
            None => self.arenas.push(arena),
        }
        self.serial
    }

    /// Tells whether work has to be waited for before an arena's memory can go back.
    /// Other contexts may be using it, for which giving it back does not wait.
    pub fn must_synchronize(&self, serial: u64) -> bool {
        let Some(arena) = self.arena(serial) else {
            return false;
        };
        let all_complete = arena.fences.timeline.is_complete();
        let foreign = rules::must_wait_for_others(self.cover(serial).foreign);
        arena.cached.oldest(&self.slab).is_some() && !all_complete && foreign
    }

    /// Takes out an arena's oldest cached blocks, until they are `bytes` bytes.
    /// With an `age`, only blocks whose work is complete and that were freed at least `age` ticks ago.
    /// `waited`: contexts other than the arena's were waited for after this fence was closed.
    pub fn evict(&mut self, serial: u64, bytes: u64, age: Option<u32>, waited: u64) -> Vec<Victim> {
        let mut victims = Vec::new();
        let foreign = rules::must_wait_for_others(self.cover(serial).foreign);
        let Some(index) = self.index(serial) else {
            return victims;
        };
        if self.arena(serial).is_none_or(Arena::is_leaving) {
            return victims;
        }
        let mut sum = 0;
        while sum < bytes {
            let Some(Some(arena)) = self.arenas.get_mut(index) else {
                break;
            };
            let Some(oldest) = arena.cached.oldest(&self.slab) else {
                break;
            };
            let block = self.slab.at(oldest);
            let idle = self.tick.wrapping_sub(block.tick);
            let complete = block.fence <= arena.fences.timeline.complete().max(waited);
            if (foreign || age.is_some()) && !complete || age.is_some_and(|age| idle < age) {
                break;
            }
            sum += block.size;
            let Some(id) = arena.cached.evict(&self.slab) else {
                break;
            };
            victims.push(self.drop_block(id));
        }
        victims
    }

    /// The block in the caller's hands at an address.
    fn live(&self, address: Address) -> Option<Id> {
        let id = *self.map.get(&address)?;
        let is_live = matches!(
            self.slab.at(id).state,
            BlockState::Live | BlockState::InThreadCache
        );
        is_live.then_some(id)
    }

    /// The driver would have refused to hand a block out, because of these captures.
    pub fn keep(&mut self, address: Address, captures: Vec<u64>) {
        if let Some(id) = self.live(address) {
            self.captures.keep(id, captures);
        }
    }

    /// The driver would have refused to take a block back.
    pub fn keep_freed(&mut self, address: Address) {
        if let Some(id) = self.live(address) {
            self.captures.keep_freed(id);
        }
    }

    /// Memory is short: blocks that wait for captures become ordinary free blocks where the driver
    /// would have freed them. Of one device or of all. Whether there were any.
    pub fn give_up(&mut self, ordinal: Option<i32>) -> bool {
        let (arenas, devices, slab) = (&self.arenas, &self.devices, &self.slab);
        let of = |id: Id| {
            let arena = arenas.get(slab.at(id).arena as usize)?.as_ref()?;
            Some(devices.get(arena.device)?.ordinal)
        };
        let ids = self
            .captures
            .give_up(|id| ordinal.is_none() || of(id) == ordinal);
        let any = !ids.is_empty();
        for id in ids {
            let arena = self.arenas.get(self.slab.at(id).arena as usize);
            if let Some(Some(arena)) = arena
                && let Some(device) = self.devices.get_mut(arena.device)
            {
                device.stats.given_up += 1;
            }
            self.return_block(id);
        }
        any
    }

    /// Blocks that no graph holds any more become ordinary free blocks.
    pub fn return_blocks(&mut self, ids: Vec<Id>) {
        for id in ids {
            let group = self.slab.at(id).group;
            if !self.captures.hold_back(id, group) {
                self.return_block(id);
            }
        }
    }

    fn return_block(&mut self, id: Id) {
        let block = self.slab.at_mut(id);
        let (index, size) = (block.arena as usize, block.size);
        block.group = 0;
        block.state = BlockState::Cached;
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return;
        };
        block.fence = arena.fences.join();
        if let Some(device) = self.devices.get_mut(arena.device) {
            device.stats.quarantined = device.stats.quarantined.saturating_sub(size);
        }
        if block.exported {
            let victim = self.drop_block(id);
            self.pending_release.push(victim);
        } else {
            arena.cached.insert(&mut self.slab, id);
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
        self.map.get(base).copied()
    }

    /// Fences up to this one are complete.
    pub fn completed(&mut self, serial: u64, id: u64) {
        if let Some(Some(arena)) = self.index(serial).and_then(|i| self.arenas.get_mut(i)) {
            arena.fences.completed(id, &mut self.garbage);
        }
    }
}
