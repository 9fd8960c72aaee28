//! Allocation and free under the lock, with the statistics of each device.

use super::block::Fit;
use super::block::{Block, Id, State as BlockState};
use super::departing::Victim;
use super::state::{After, State};
use crate::handles::{Address, Context};
use crate::types::{FreeError, Freed, Grant, Source, Stamp};

impl<E: Copy> State<E> {
    /// A ready block of the context, if there is one.
    #[inline]
    pub fn take(&mut self, index: usize, bytes: u64, source: Source) -> Result<Grant, Fit> {
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return Err(Fit::Nothing);
        };
        let ready = arena.fences.ready();
        match arena.cached.take(&self.slab, bytes, ready) {
            Fit::Ready(id) => Ok(self.grant(index, id, bytes, source)),
            other => Err(other),
        }
    }

    /// A ready block like that of [`State::take`], but it may be larger than the slack allows.
    pub fn take_loosely(&mut self, index: usize, bytes: u64, source: Source) -> Result<Grant, Fit> {
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return Err(Fit::Nothing);
        };
        let ready = arena.fences.ready();
        match arena.cached.take_loosely(&self.slab, bytes, ready) {
            Fit::Ready(id) => Ok(self.grant(index, id, bytes, source)),
            other => Err(other),
        }
    }

    #[inline]
    pub(super) fn grant(&mut self, index: usize, id: Id, bytes: u64, source: Source) -> Grant {
        let block = self.slab.at_mut(id);
        block.state = BlockState::Live;
        block.requested = bytes;
        block.group = self.captures.group();
        let grant = Grant {
            address: block.address,
            requested: bytes,
            size: block.size,
            source,
            after: self.latest,
            number: id,
        };
        if let Some(Some(arena)) = self.arenas.get_mut(index) {
            arena.allocated(grant.size);
            if let Some(device) = self.devices.get_mut(arena.device) {
                device.stats.granted(&grant);
            }
        }
        grant
    }

    /// Takes in a driver allocation and hands it out. `None`: the context is gone.
    pub fn grown(&mut self, serial: u64, address: Address, size: u64, bytes: u64) -> Option<Grant> {
        let index = self.index(serial)?;
        let id = self.slab.insert(Block::new(address, size, index as u32))?;
        self.map.insert(address, id);
        self.ranges.insert(address, size);
        let arena = self.arenas.get_mut(index)?.as_mut()?;
        arena.reserved += size;
        arena.bases.insert(address);
        if let Some(device) = self.devices.get_mut(arena.device) {
            device.stats.reserve(size);
        }
        Some(self.grant(index, id, bytes, Source::Grown))
    }

    /// Takes a block back from the caller.
    #[inline]
    pub fn free<X, S: Into<Stamp>>(
        &mut self,
        address: Address,
        strict: bool,
        seen: impl FnOnce(&Freed) -> S,
    ) -> Result<After, FreeError<X>> {
        let id = *self.map.get(&address).ok_or(FreeError::Unknown)?;
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
        let serial = arena.serial;
        let now = seen(&Freed {
            address,
            requested,
            size,
            device: device.ordinal,
            for_all: true,
            number: id,
        });
        self.latest = self.latest.max(now.into());
        arena.allocated = arena.allocated.saturating_sub(size);
        let stats = &mut device.stats;
        stats.freed(size, requested);
        block.tick = self.tick;
        if self.captures.quarantine(id, block.group) {
            block.state = BlockState::Quarantined;
            stats.quarantined += size;
            return Ok(After::Nothing);
        }
        // Nothing waits for a broken capture, but it is open: no context can be waited for.
        let is_quiet = !self.captures.is_open();
        if block.exported {
            let victim = self.drop_block(id);
            if is_quiet {
                return Ok(After::Release(victim));
            }
            self.pending_release.push(victim);
            return Ok(After::Nothing);
        }
        block.state = BlockState::Cached;
        block.fence = arena.fences.join();
        arena.cached.insert(&mut self.slab, id);
        if strict && is_quiet {
            return Ok(After::Synchronize(serial));
        }
        let surplus = device.surplus(self.settings.cache_max);
        if surplus > 0 {
            return Ok(After::Shrink(arena.device));
        }
        Ok(After::Nothing)
    }

    /// Forgets a block that is not kept anywhere. It counts as reserved until released.
    pub fn drop_block(&mut self, id: Id) -> Victim {
        let block = self.slab.at(id);
        let (address, bytes, index) = (block.address, block.size, block.arena as usize);
        // Of a context that is about to end: the address may be another's.
        let is_known = self.map.get(&address) == Some(&id);
        if is_known {
            self.map.remove(&address);
            self.ranges.remove(&address);
        }
        self.slab.remove(id);
        let mut victim = Victim {
            arena: 0,
            device: usize::MAX,
            context: Context(0),
            born: 0,
            address,
            bytes,
            number: 0,
        };
        if let Some(Some(arena)) = self.arenas.get_mut(index) {
            arena.bases.remove(&address);
            arena.leaving.retain(|first| *first != id);
            victim.arena = arena.serial;
            victim.context = arena.context;
            victim.born = arena.born;
            victim.device = arena.device;
            if is_known {
                victim.number = self.departing.add(address, arena.serial);
            }
            if let Some(device) = self.devices.get_mut(arena.device) {
                device.releasing += bytes;
            }
        }
        victim
    }

    /// A driver allocation could not go back after all. It is lost, and stays reserved.
    pub fn not_released(&mut self, victim: &Victim) {
        self.departing.end(victim);
        if let Some(device) = self.devices.get_mut(victim.device) {
            device.releasing = device.releasing.saturating_sub(victim.bytes);
        }
    }

    /// A driver allocation has gone back.
    pub fn released(&mut self, victim: &Victim) {
        self.departing.end(victim);
        let Some(device) = self.devices.get_mut(victim.device) else {
            return;
        };
        device.releasing = device.releasing.saturating_sub(victim.bytes);
        let mut arenas = self.arenas.iter_mut().flatten();
        if let Some(arena) = arenas.find(|arena| arena.serial == victim.arena) {
            arena.reserved = arena.reserved.saturating_sub(victim.bytes);
            device.stats.reserved = device.stats.reserved.saturating_sub(victim.bytes);
            device.stats.released += 1;
        }
    }
}
