//! Plans made beforehand: where each request of a run goes, for runs that repeat what was recorded.
//!
//! What the policy `plan:FILE` follows. Made by `gpushim plan` from a recording, kept as text ([`Plans`]),
//! followed by a pool as long as the program asks for the same sizes in the same order ([`PoolPlan`]).

use std::collections::BTreeMap;
use std::sync::Arc;

mod file;
#[cfg(test)]
mod tests;

pub use file::{MOST, ReadError};

/// Places begin at multiples of this, and sizes are rounded up to it, bytes.
pub const GRANULE: u64 = crate::size_class::GRANULE;

/// One allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the block: a multiple of [`GRANULE`].
    pub bytes: u64,
    /// Bytes from the beginning of the pool's planned addresses; `None` leaves the place to the pool.
    pub offset: Option<u64>,
}

/// The allocations of one pool, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolPlan {
    steps: Vec<Step>,
    /// Which step comes after the last one.
    again: Option<usize>,
}

impl PoolPlan {
    /// These steps; after the last one, those from `again` on follow once more.
    pub fn new(steps: Vec<Step>, again: Option<usize>) -> PoolPlan {
        let again = again.filter(|at| *at < steps.len());
        PoolPlan { steps, again }
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step that follows the last one.
    pub fn again(&self) -> Option<usize> {
        self.again
    }

    /// Bytes that the places take together, from the first to the end of the last.
    pub fn bytes(&self) -> u64 {
        let ends = self.steps.iter().filter_map(|step| {
            let offset = step.offset?;
            Some(offset.saturating_add(step.bytes))
        });
        ends.max().unwrap_or(0)
    }

    /// The step at a position, which goes on without end where the plan repeats.
    #[inline]
    pub fn step(&self, at: usize) -> Option<Step> {
        self.steps.get(at).copied()
    }

    /// The position after one.
    #[inline]
    pub fn after(&self, at: usize) -> usize {
        let next = at.saturating_add(1);
        match self.again {
            Some(again) if next >= self.steps.len() => again,
            _ => next,
        }
    }
}

/// Which pool of a device is meant: each has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// That of `cudaMalloc` and its kin.
    Plain,
    /// That of `cudaMallocAsync` and its kin: the device's default pool.
    Streams,
}

impl Family {
    /// Its name in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Plain => "plain",
            Family::Streams => "streams",
        }
    }
}

/// The plans for all pools of a process, by the device's ordinal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plans {
    /// For each pool that has one.
    pub pools: BTreeMap<(i32, Family), Arc<PoolPlan>>,
}

impl Plans {
    /// That of a pool.
    pub fn of(&self, device: i32, family: Family) -> Option<Arc<PoolPlan>> {
        self.pools.get(&(device, family)).cloned()
    }
}
