//! Peer access and shared devices: the contexts that a fence must cover.

use super::arena::Peer;
use super::block::{Id, State as BlockState};
use super::fences::Contexts;
use super::leaving;
use super::state::{Cover, State};
use super::types::Gone;
use crate::handles::Context;
use crate::rules;

impl<E: Copy> State<E> {
    /// The contexts whose work may reach an arena's memory: its own, those on the same device, and
    /// those that were given access.
    pub fn cover(&self, serial: u64) -> Cover {
        let mut cover = Cover {
            contexts: Contexts::new(),
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
            if other.serial != serial && rules::is_neighbour(other.device == arena.device) {
                cover.contexts.push(other.context);
                cover.foreign = true;
            }
        }
        let far = |accessor: &Context| rules::is_peer(!near(*accessor));
        for accessor in arena.accessors().filter(far) {
            cover.contexts.push(accessor);
            cover.foreign = true;
        }
        cover
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
        for arena in self
            .arenas
            .iter_mut()
            .flatten()
            .filter(|arena| arena.context == owner)
        {
            let open = arena.fences.timeline.open();
            for peer in arena
                .peers
                .iter_mut()
                .filter(|peer| peer.context == accessor)
            {
                peer.until = Some(rules::reaches_until(open));
            }
        }
    }

    /// Forgets a context that no longer exists, and all that it held.
    pub fn context_gone(&mut self, context: Context) -> Gone {
        for arena in self.arenas.iter_mut().flatten() {
            arena.fences.forget(context);
            arena.peers.retain(|peer| peer.context != context);
        }
        self.garbage
            .iter_mut()
            .for_each(|events| events.retain(|(of, _)| *of != context));
        let Some(index) = self.index_of(context) else {
            return Gone::default();
        };
        let Some(mut arena) = self.arenas.get_mut(index).and_then(Option::take) else {
            return Gone::default();
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
        let (mut live, mut requested, mut quarantined) = (Vec::new(), 0, 0);
        let has_left = !arena.leaving.is_empty();
        let leaving = std::mem::take(&mut arena.leaving);
        for id in leaving::blocks(leaving, arena.bases.iter().copied(), map) {
            let block = slab.at(id);
            match block.state {
                BlockState::Live => {
                    requested += block.requested;
                    live.push(block.address);
                }
                BlockState::Quarantined => quarantined += block.size,
                BlockState::Cached | BlockState::InThreadCache => {}
            }
            if !has_left {
                ranges.remove(&block.address);
                map.remove(&block.address);
            }
            slab.remove(id);
        }
        self.departing.forget(arena.serial);
        let mut releasing = 0;
        self.pending_release.retain(|victim| {
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
            stats.live = stats.live.saturating_sub(live.len() as u64);
            device.releasing = device.releasing.saturating_sub(releasing);
        }
        let (allocated, reserved) = (arena.allocated, arena.reserved);
        self.garbage.extend(arena.fences.timeline.void());
        Gone {
            live,
            allocated,
            reserved,
        }
    }
}
