//! A pool that follows a plan: each request goes where it was decided beforehand, as long as the
//! requests come as they did then.
//!
//! A plan is a wish, never a promise: a place is taken only if everything there is free, and behind
//! the work that used it, as for any other block. At the first request that differs, or whose place is not
//! free, a plan of a whole run is given up, and everything there is ordinary memory of the pool from then on.
//!
//! A plan that repeats a period is not given up: after a request that differs the pool serves all requests in its
//! own way until they are those with which the period begins ([`Begin`]), and follows from there. A request whose place is not
//! free goes elsewhere, and the next one is to go to its place again. Both end when memory runs short.

use super::block::Id;
use super::types::Settings;
use crate::plan::PoolPlan;
use crate::policy::Policy;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a plan was left.
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
    /// Where it was left last. With `asked` and `expected` alike, the place was not free.
    pub diverged: Option<Divergence>,
    /// How often it was followed again, from the next period on.
    pub returned: u64,
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
    /// By what a period is found again; `None`: the plan has none.
    begin: Option<Begin>,
    /// The requests differ from the plan; the period's beginning is awaited.
    pub is_astray: bool,
    /// The next step's place is not free: its request goes anywhere.
    pub is_elsewhere: bool,
    diverged: Option<Divergence>,
    returned: u64,
}

/// Steps at the beginning of a period that must have been requested before it is followed again, at most.
const MARK: usize = 16;

/// Finds the first steps of a period among requests (Knuth, Morris and Pratt, 1977).
struct Begin {
    /// Their sizes in bytes.
    sizes: Vec<u64>,
    /// For each number of sizes that were found: how many of the last ones are a beginning, too.
    shorter: Vec<usize>,
    found: usize,
}

impl Begin {
    fn of(plan: &PoolPlan) -> Option<Begin> {
        let period = plan.steps().get(plan.again()?..)?;
        let sizes: Vec<u64> = period.iter().take(MARK).map(|step| step.bytes).collect();
        let mut begin = Begin {
            shorter: vec![0; sizes.len() + 1],
            sizes,
            found: 0,
        };
        for length in 1..begin.sizes.len() {
            let size = begin.sizes.get(length).copied().unwrap_or(0);
            let found = begin.after(size);
            if let Some(place) = begin.shorter.get_mut(length + 1) {
                *place = found;
            }
            begin.found = found;
        }
        begin.found = 0;
        Some(begin)
    }

    /// How many sizes are found after one more.
    fn after(&self, size: u64) -> usize {
        let mut found = self.found;
        while self.sizes.get(found) != Some(&size) {
            if found == 0 {
                return 0;
            }
            found = self.shorter.get(found).copied().unwrap_or(0);
        }
        found + 1
    }

    /// Another block was handed out. Whether all sizes were found.
    fn see(&mut self, size: u64) -> bool {
        self.found = self.after(size);
        let is_all = self.found == self.sizes.len();
        if is_all {
            self.found = 0;
        }
        is_all
    }
}

impl PlanFollower {
    pub fn new(settings: &Settings) -> Option<PlanFollower> {
        let plan = settings.plan.clone()?;
        (settings.policy == Policy::Vmm).then(|| PlanFollower {
            begin: Begin::of(&plan),
            plan,
            next: 0,
            followed: 0,
            base: None,
            blocks: BTreeMap::new(),
            is_astray: false,
            is_elsewhere: false,
            diverged: None,
            returned: 0,
        })
    }

    /// Whether the plan repeats a period, and so can be followed again.
    pub fn repeats(&self) -> bool {
        self.begin.is_some()
    }

    /// How far it was followed.
    pub fn progress(&self) -> Progress {
        Progress {
            followed: self.followed,
            diverged: self.diverged,
            returned: self.returned,
        }
    }

    /// A request of this many bytes did not go to its place.
    pub fn diverges(&mut self, asked: u64) {
        let step = self.plan.step(self.next);
        self.diverged = Some(Divergence {
            asked,
            expected: step.map_or(0, |step| step.bytes),
        });
    }

    /// A block of this size was handed out while the beginning of the period is awaited.
    pub fn look_for_begin(&mut self, size: u64) {
        let Some(begin) = &mut self.begin else { return };
        let Some(mut next) = self.plan.again().filter(|_| begin.see(size)) else {
            return;
        };
        for _ in 0..begin.sizes.len() {
            next = self.plan.after(next);
        }
        (self.next, self.is_astray) = (next, false);
        self.returned += 1;
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
