//! A context that is about to end. While the driver ends it, it may hand the context's addresses out again, to
//! another thread: they must lead to the new memory from then on, and never to what was there before.

use super::block::{ByAddress, Id};
use super::device::Device;
use super::pool::DevicePool;
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
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return;
        };
        self.departing.forget(arena.serial);
        for base in &arena.bases {
            arena.leaving.extend(self.map.remove(base));
            self.ranges.remove(base);
        }
    }

    fn context_stays(&mut self, context: Context) {
        let Some(index) = self.index_of(context) else {
            return;
        };
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return;
        };
        for id in std::mem::take(&mut arena.leaving) {
            let block = self.slab.at(id);
            self.ranges.insert(block.address, block.size);
            self.map.insert(block.address, id);
        }
    }
}

/// All blocks of an arena, whether or not its context is about to end.
pub(super) fn blocks(
    leaving: Vec<Id>,
    bases: impl Iterator<Item = Address>,
    map: &ByAddress,
) -> Vec<Id> {
    match leaving.is_empty() {
        true => bases.filter_map(|base| map.get(&base).copied()).collect(),
        false => leaving,
    }
}
