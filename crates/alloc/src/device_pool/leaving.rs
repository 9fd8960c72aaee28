//! A context that is about to end. While the driver ends it, it may hand the context's addresses out again, to
//! another thread: they must lead to the new memory from then on, and never to what was there before.

use super::block::{Id, NIL, Slab};
use super::device::Device;
use super::pool::DevicePool;
use super::segments::Map;
use super::state::State;
use super::thread_cache::Flush;
use crate::handles::{Address, Context};

impl<D: Device> DevicePool<D> {
    /// The context is about to end: its blocks are found by no address from here on. To be followed by
    /// [`DevicePool::context_gone`], or by [`DevicePool::context_stays`]. No driver call.
    pub fn context_leaves(&self, context: Context) {
        let mut state = self.state.lock();
        self.flush_caches(&mut state, Flush::All);
        state.context_leaves(context);
    }

    /// The context did not end after all: everything is as it was.
    pub fn context_stays(&self, context: Context) {
        self.state.lock().context_stays(context);
    }
}

impl<E: Copy> State<E> {
    fn context_leaves(&mut self, context: Context) {
        let Some(index) = self.index_of(context) else {
            return;
        };
        let State {
            arenas,
            slab,
            map,
            ranges,
            departing,
            ..
        } = self;
        let Some(Some(arena)) = arenas.get_mut(index) else {
            return;
        };
        departing.forget(arena.serial);
        for base in &arena.bases {
            let Some(first) = map.get(base).copied() else {
                continue;
            };
            arena.leaving.push(first);
            ranges.remove(base);
            parts(slab, first).for_each(|(address, _)| {
                map.remove(&address);
            });
        }
    }

    fn context_stays(&mut self, context: Context) {
        let Some(index) = self.index_of(context) else {
            return;
        };
        let State {
            arenas,
            slab,
            map,
            ranges,
            ..
        } = self;
        let Some(Some(arena)) = arenas.get_mut(index) else {
            return;
        };
        for first in std::mem::take(&mut arena.leaving) {
            let base = slab.at(first).address;
            let bytes = parts(slab, first).map(|(_, id)| slab.at(id).size).sum();
            ranges.insert(base, bytes);
            map.extend(parts(slab, first));
        }
    }
}

/// The blocks that a driver allocation is split into, from its first one.
pub(super) fn parts(slab: &Slab, first: Id) -> impl Iterator<Item = (Address, Id)> {
    let mut id = first;
    std::iter::from_fn(move || {
        if id == NIL {
            return None;
        }
        let block = slab.at(id);
        let part = (block.address, id);
        id = block.right;
        Some(part)
    })
}

/// The first blocks of an arena's driver allocations.
pub(super) fn firsts(leaving: Vec<Id>, bases: impl Iterator<Item = Address>, map: &Map) -> Vec<Id> {
    match leaving.is_empty() {
        true => bases.filter_map(|base| map.get(&base).copied()).collect(),
        false => leaving,
    }
}
