//! Memory on its way back to the driver: trimming, decay, and making room.

use super::block::Id;
use super::departing::Victim;
use super::device::Device;
use super::pool::{DevicePool, Guard};
use super::state::{Cover, State};
use super::thread_cache::Flush;
use super::work::Recorded;
use crate::handles::Context;
use crate::policy::TICKS_TO_DECAY;
use crate::types::PATIENCE;

/// Cached memory that may be given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Anything cached, after waiting for its work if need be.
    Any,
    /// What is complete and was freed at least this many ticks ago.
    Old(u32),
}

impl<D: Device> DevicePool<D> {
    /// Gives cached memory back to the driver until at most `keep` bytes are cached, in all
    /// contexts or those of one device. Waits for work where it must. Returns the bytes given back;
    /// 0 while a stream captures.
    pub fn trim(&self, device: Option<i32>, keep: u64) -> u64 {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::Idle);
        let mut given = self.settle(&mut state);
        for serial in self.serials(&state, device) {
            let cached = Self::total(&state, device).cached();
            if cached <= keep {
                break;
            }
            given += self.give_back(&mut state, serial, cached - keep, Which::Any);
        }
        given
    }

    /// Gives back what the driver would have free by now, whatever it waits for: memory is short. In
    /// all contexts or those of one device. Returns the bytes given back.
    pub fn make_room(&self, device: Option<i32>) -> u64 {
        let given = self.trim(device, 0);
        let mut state = self.state.lock();
        if given == 0 {
            self.flush_caches(&mut state, Flush::Back);
        }
        given + self.scrape(&mut state, device)
    }

    /// Gives back what no work uses any more, of one device: memory is short in another process. Waits for no work itself;
    /// what becomes free a little later, another call finds. Returns the bytes given back; 0 while a stream captures.
    pub fn give_complete(&self, device: i32) -> u64 {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::Idle);
        let mut given = self.settle(&mut state);
        for serial in self.serials(&state, Some(device)) {
            self.look_for_complete(&mut state, serial);
            given += self.give_back(&mut state, serial, u64::MAX, Which::Old(0));
        }
        given
    }

    /// Waits until what is on its way back to the driver is there; not for ever, nor for the end of a capture.
    pub fn wait_for_releases(&self) {
        let mut state = self.state.lock();
        let is_releasing = |state: &mut State<D::Event>| {
            !state.captures.is_open() && state.devices.iter().any(|device| device.releasing > 0)
        };
        self.changed
            .wait_while_for(&mut state, is_releasing, PATIENCE);
    }

    /// As [`DevicePool::make_room`], when what is given back otherwise was not enough.
    pub(super) fn scrape(&self, state: &mut Guard<'_, D>, device: Option<i32>) -> u64 {
        let more = state.give_up(device);
        let serials = self.serials(state, device);
        if more && !state.captures.is_open() {
            let given = self.settle(state);
            let each = |serial: &u64| self.give_back(state, *serial, u64::MAX, Which::Any);
            let given = given + serials.iter().map(each).sum::<u64>();
            if given > 0 {
                return given;
            }
        }
        let unfenced = |serial| self.give_back_unfenced(state, serial);
        serials.into_iter().map(unfenced).sum()
    }

    /// Gives all cached memory of an arena back although no fence can be made, as while a stream captures:
    /// the driver waits for the arena's own context, and the host for others.
    fn give_back_unfenced(&self, state: &mut Guard<'_, D>, serial: u64) -> u64 {
        let Cover { contexts, foreign } = state.cover(serial);
        let Some(arena) = state.arena_mut(serial) else {
            return 0;
        };
        let (own, mut waited, mut latest) = (arena.context, 0, 0);
        if foreign {
            let fence = arena.fences.timeline.close();
            let last = state.departing.latest();
            let done = self.outside(state, |device| {
                let mut others = contexts.iter().filter(|context| **context != own);
                others.all(|context| {
                    let waited = match device.captures(*context) {
                        true => device.drain(*context),
                        false => device.finish(*context),
                    };
                    waited.is_ok()
                })
            });
            (waited, latest) = if done { (fence, last) } else { (0, 0) };
        }
        let mut victims = state.evict(serial, u64::MAX, None, waited);
        // Exported memory that was freed before a successful wait began may go back, too. Victims without a number were
        // not seen to come before it.
        let may_go = |victim: &Victim| !foreign || (1..=latest).contains(&victim.number);
        let (ours, rest) = std::mem::take(&mut state.pending_release)
            .into_iter()
            .partition(|victim| victim.arena == serial && may_go(victim));
        state.pending_release = rest;
        victims.extend::<Vec<Victim>>(ours);
        self.release(state, victims)
    }

    /// One tick of the background thread's clock: what was freed [`TICKS_TO_DECAY`] ticks ago and not
    /// asked for since goes back, if its work has finished. Returns the bytes given back; does
    /// nothing while a stream captures.
    pub fn decay(&self) -> u64 {
        let mut state = self.state.lock();
        if state.captures.is_open() {
            return 0;
        }
        self.flush_caches(&mut state, Flush::Idle);
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
    pub(super) fn look_for_complete(&self, state: &mut Guard<'_, D>, serial: u64) {
        let last = state
            .arena(serial)
            .and_then(|arena| arena.fences.timeline.last());
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
            && arena.fences.timeline.is_joined()
        {
            let id = arena.fences.timeline.close();
            if matches!(
                self.record(state, serial, id, &cover.contexts, None),
                Recorded::Unsupported
            ) {
                self.synchronize(state, serial, id, &cover.contexts);
            }
        }
    }

    /// Does what had to wait: memory that is to go back, contexts that are to be ordered.
    /// Returns the bytes that went back.
    pub(super) fn settle(&self, state: &mut Guard<'_, D>) -> u64 {
        let mut given = 0;
        // What could not be done while a stream captures: when it no longer does.
        let mut later = Vec::new();
        loop {
            if let Some((context, serial)) = state.behind.pop() {
                if !self.catch_up(state, context, serial) {
                    later.push((context, serial));
                }
                continue;
            }
            if state.captures.is_open() {
                break;
            }
            let Some(victim) = state.pending_release.pop() else {
                break;
            };
            let bytes = victim.bytes;
            // A driver that refuses has lost its context: the memory is gone either way.
            given += self.release_exported(state, victim).map_or(0, |()| bytes);
        }
        // Not for a context that went in the meantime.
        later.retain(|(context, serial)| {
            let arena = state.arena(*serial);
            arena.is_some_and(|arena| arena.peers.iter().any(|peer| peer.context == *context))
        });
        state.behind.append(&mut later);
        given
    }

    /// Later work of a context comes after what an arena's memory was last ordered after. False if that is
    /// to be tried again.
    fn catch_up(&self, state: &mut Guard<'_, D>, context: Context, serial: u64) -> bool {
        let arena = state.arena(serial);
        let Some(events) = arena.and_then(|arena| arena.fences.last_ordered()) else {
            return true;
        };
        // Ordering a context would invalidate a capture in it; to wait on the host does not.
        let order = !state.captures.is_open();
        self.outside(state, |device| {
            let mut done = true;
            for (_, event) in events.iter() {
                if !order || device.order(context, *event).is_err() {
                    // If waiting fails after an order did, so does the work that would have needed it.
                    done &= device.wait(*event).is_ok() || order;
                }
            }
            done
        })
    }

    /// Gives an arena's oldest cached memory back, until it is `bytes` bytes. Returns the bytes given back.
    pub(super) fn give_back(
        &self,
        state: &mut Guard<'_, D>,
        serial: u64,
        bytes: u64,
        which: Which,
    ) -> u64 {
        if state.captures.is_open() {
            return 0;
        }
        if which == Which::Any && state.must_synchronize(serial) {
            let Cover { contexts, .. } = state.cover(serial);
            if let Some(arena) = state.arena_mut(serial) {
                let id = arena.fences.timeline.close();
                self.synchronize(state, serial, id, &contexts);
            }
            if state.captures.is_open() {
                return 0;
            }
        }
        let age = match which {
            Which::Any => None,
            Which::Old(ticks) => Some(ticks),
        };
        let victims = state.evict(serial, bytes, age, 0);
        let given = if victims.is_empty() {
            0
        } else {
            self.release(state, victims)
        };
        // Exported memory is pending release: what the driver refuses to wait for is not given.
        given + self.settle(state)
    }

    /// Blocks came out of quarantine.
    pub(super) fn returned(&self, state: &mut Guard<'_, D>, blocks: Vec<Id>) {
        state.return_blocks(blocks);
        self.settle(state);
        for device in 0..state.devices.len() {
            self.shrink(state, device);
        }
    }

    /// Gives a device's oldest cached memory back where it is more than may be.
    pub(super) fn shrink(&self, state: &mut Guard<'_, D>, device: usize) {
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
    pub(super) fn give_back_device(
        &self,
        state: &mut Guard<'_, D>,
        device: usize,
        bytes: u64,
    ) -> u64 {
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
