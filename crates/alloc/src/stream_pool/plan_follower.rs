//! A pool that follows a plan: each request goes where it was decided beforehand, as long as the
//! requests come as they did then.
//!
//! A plan is a wish, never a promise: a place is taken only if everything there is free, and behind
//! the work that used it, as for any other block. At the first request that differs, or whose place is not
//! free, the plan is given up, and everything there is ordinary memory of the pool from then on.

use super::block::Id;
use super::types::Settings;
use crate::plan::PoolPlan;
use crate::policy::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a plan was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Bytes of the block that was asked for.
    pub asked: u64,
    /// Bytes of the block that was to be asked for; 0: the plan was at its end.
    pub expected: u64,
}

/// How far a pool followed its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Allocations that went as they were to.
    pub followed: u64,
    /// Where it ended. With `asked` and `expected` alike, the place was not free.
    pub diverged: Option<Divergence>,
}

/// A plan that is followed.
pub(super) struct PlanFollower {
    pub plan: Arc<PoolPlan>,
    pub next: usize,
    pub followed: u64,
    /// Where its addresses begin; `None` until there are any.
    pub base: Option<u64>,
    /// All blocks in the order of their addresses.
    pub blocks: BTreeMap<u64, Id>,
}

impl PlanFollower {
    pub fn new(settings: &Settings) -> Option<PlanFollower> {
        let plan = settings.plan.clone()?;
        (settings.policy == Policy::Vmm).then(|| PlanFollower {
            plan,
            next: 0,
            followed: 0,
            base: None,
            blocks: BTreeMap::new(),
        })
    }

    /// The addresses begin here.
    pub fn begins(&mut self, base: u64) {
        self.base = Some(base);
    }

    /// A block begins at an address.
    pub fn put(&mut self, address: u64, id: Id) {
        self.blocks.insert(address, id);
    }

    /// No block begins at an address any more.
    pub fn gone(&mut self, address: u64) {
        self.blocks.remove(&address);
    }

    /// The block that contains an address.
    pub fn at(&self, address: u64) -> Option<Id> {
        self.blocks.range(..=address).next_back().map(|(_, id)| *id)
    }
}
