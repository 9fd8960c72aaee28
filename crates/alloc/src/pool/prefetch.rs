//! Frees that are known in advance, as they are in a replay.

use super::block::NIL;
use super::serve::Pool;
use crate::driver::Driver;
use std::hint::black_box;

/// Number of blocks that are looked up together: about as many loads as a processor core has in
/// progress, or some more.
const TOGETHER: usize = 16;

impl<D: Driver> Pool<D> {
    /// Loads the memory that frees of these addresses will read. The loads do not depend on each
    /// other, so memory answers them at the same time. Frees would wait for them one after another.
    /// Changes nothing.
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
