//! Frees that are known before they come, as only a replay knows them.

use super::block::NIL;
use super::serve::Pool;
use crate::driver::Driver;
use std::hint::black_box;

/// Blocks that are looked up at the same time: as many loads from memory as a processor core has under way, or some more.
const TOGETHER: usize = 16;

impl<D: Driver> Pool<D> {
    /// Reads what frees of these addresses will read. The loads do not depend on each other, so memory answers
    /// them at the same time, where frees would wait for one after the other. Changes nothing.
    pub fn warm(&self, addresses: &[u64]) {
        let state = self.state.lock_without_caches();
        for some in addresses.chunks(TOGETHER) {
            let mut ids = [NIL; TOGETHER];
            for (id, address) in ids.iter_mut().zip(some) {
                *id = state.beginning(*address).unwrap_or(NIL);
            }
            for id in ids {
                black_box(state.slab.at(id).state);
            }
        }
    }
}
