//! Plans from known lifetimes: an address for each block of a run, with the least memory.
//!
//! A run that repeats itself is planned up to its second period, which then follows itself for as long as the
//! program goes on like this; every run is planned once as a whole, too. Which of them serves best, or whether `vmm` without
//! a plan does, a simulation decides.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::lives::{Lives, Span};
use super::place::{self, Block, Budget};
use super::repeat::{self, Period};
use crate::requests::Requests;
use gpushim_alloc::plan::{Family, Plans, PoolPlan, Step};

/// The most blocks that get an address. The pool places later blocks itself.
pub const MOST: usize = 1_000_000;
/// Blocks up to this many bytes need no address if they outlive their period: they do not fragment the memory of large
/// blocks, since the pool keeps the two apart.
const LOOSE: u64 = 256 << 10;
/// Periods that are planned as one if blocks outlive a single period.
const TOGETHER: usize = 4;

/// What a plan is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// All up to the end of a period, which then follows itself.
    Period,
    /// All allocations, once.
    Whole,
}

/// A placement, and what it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What a pool follows.
    pub placement: Arc<PoolPlan>,
    /// Whether it is followed again and again.
    pub kind: Kind,
    /// Allocations of the recording.
    pub allocations: usize,
    /// How many of them it holds for; those that come after are not foreseen.
    pub covered: usize,
    /// The highest sum of what these asked for and had not given back, bytes.
    pub peak_requested: u64,
    /// No placement of these blocks takes fewer bytes.
    pub least: u64,
}

impl Plan {
    /// Each kind that there is for the blocks of one family: that of a period first.
    fn all(lives: &Lives, budget: &mut Budget<'_>) -> Vec<Plan> {
        // Offsets are sums of sizes and must fit into 64 bits; no device has that much memory.
        let all = lives.spans.iter().map(|span| span.bytes);
        let is_absurd = all.fold(0, u64::saturating_add) > u64::MAX / 2;
        if lives.spans.is_empty() || is_absurd {
            return Vec::new();
        }
        let period = repeat::find(&lives.tokens);
        let repeated =
            period.and_then(|period| budget.share(2, |budget| repeating(lives, period, budget)));
        let whole = once(lives, budget);
        let found = [(Kind::Period, repeated), (Kind::Whole, Some(whole))];
        let made = found.into_iter().filter_map(|(kind, found)| {
            let found = found?;
            Some(Plan {
                placement: Arc::new(found.placement),
                kind,
                allocations: lives.spans.len(),
                covered: found.covered,
                peak_requested: lives.peak(found.covered),
                least: found.least,
            })
        });
        made.collect()
    }
}

/// The plans that serve a device's requests with the least memory, and what was compared.
#[derive(Debug, Default)]
pub struct Choice {
    /// By family; that of a family for which `vmm` alone is best is missing.
    pub plans: Vec<(Family, Plan)>,
    /// Bytes that are held from the driver at most when the plans are followed.
    pub held: u64,
    /// The same under `vmm` alone.
    pub held_by_vmm: u64,
}

impl Choice {
    /// For the pools of this device.
    pub fn plans(&self, device: i32) -> Plans {
        let plans = self.plans.iter();
        let pools = plans.map(|(family, plan)| ((device, *family), plan.placement.clone()));
        Plans {
            pools: pools.collect(),
        }
    }
}

/// Serves requests with the plans of device 0 in a simulation and says how many bytes were held from the driver at most.
pub type Simulate<'a> = &'a dyn Fn(&Plans) -> u64;

/// Plans each family's requests as a period, as a whole and not at all, simulates all of that, and takes what holds least.
/// All placements share one budget.
/// Of those that hold as much a period is taken, which is followed for longest, then a whole run.
pub fn choose(requests: &Requests, simulate: Simulate<'_>, budget: &mut Budget<'_>) -> Choice {
    let held_by_vmm = simulate(&Plans::default());
    let mut best = Choice {
        plans: Vec::new(),
        held: held_by_vmm,
        held_by_vmm,
    };
    let [plain, streams] =
        [Family::Plain, Family::Streams].map(|family| Lives::of(requests, family));
    let among = usize::from(!plain.spans.is_empty()) + usize::from(!streams.spans.is_empty());
    let mut of = |lives, among| {
        let plans = budget.share(among, |budget| Plan::all(lives, budget));
        let plans = plans.into_iter().map(Some);
        plans.chain([None]).collect::<Vec<_>>()
    };
    let (plain, streams) = (of(&plain, among), of(&streams, 1));
    for plain in &plain {
        for streams in &streams {
            let plain = plain.clone().map(|plan| (Family::Plain, plan));
            let streams = streams.clone().map(|plan| (Family::Streams, plan));
            let plans: Vec<_> = plain.into_iter().chain(streams).collect();
            if plans.is_empty() {
                continue;
            }
            let mut next = Choice {
                plans,
                held: 0,
                held_by_vmm,
            };
            next.held = simulate(&next.plans(0));
            let is_first = best.plans.is_empty() && next.held == best.held;
            if next.held < best.held || is_first {
                best = next;
            }
        }
    }
    best
}

/// A placement of the first blocks of a run.
struct Found {
    placement: PoolPlan,
    covered: usize,
    least: u64,
}

/// Whether the requests of each family repeat themselves, so that a plan can be followed over and over.
pub fn repeats(requests: &Requests) -> bool {
    let lives = [Family::Plain, Family::Streams].map(|family| Lives::of(requests, family));
    let mut all = lives.iter().filter(|lives| !lives.spans.is_empty());
    all.all(|lives| repeat::find(&lives.tokens).is_some())
}

/// From the beginning, as far as it can be foreseen.
fn once(lives: &Lives, budget: &mut Budget<'_>) -> Found {
    let spans = lives.spans.get(..MOST).unwrap_or(&lives.spans);
    let blocks: Vec<Block> = spans.iter().map(|span| Block::one(*span)).collect();
    let placed = place::place(&blocks, budget);
    let steps = spans.iter().zip(placed.offsets).map(|(span, offset)| Step {
        bytes: span.bytes,
        offset: Some(offset),
    });
    Found {
        placement: PoolPlan::new(steps.collect(), None),
        covered: spans.len(),
        least: placed.least,
    }
}

/// With a part that repeats. `None`: there are large blocks that outlive it, or too many blocks.
fn repeating(lives: &Lives, period: Period, budget: &mut Budget<'_>) -> Option<Found> {
    (1..=TOGETHER).find_map(|times| {
        let length = period.length * times;
        // One before, so that what lives across its beginning is known, and one after, for the same at its end.
        let from = period.from + length;
        (from + 2 * length <= period.to).then(|| around(lives, period, from, length, budget))?
    })
}

/// The period that begins at a request, and all before it.
fn around(
    lives: &Lives,
    period: Period,
    from: usize,
    length: usize,
    budget: &mut Budget<'_>,
) -> Option<Found> {
    let to = from + length;
    let first = lives.allocations_before(from);
    let spans = lives.spans.get(..lives.allocations_before(to))?;
    if spans.len() > MOST {
        return None;
    }
    let apart = spans.len() - first;
    let mut blocks: Vec<Option<Block>> = Vec::with_capacity(spans.len());
    for span in spans.get(..first)? {
        // Blocks that are not freed in this part stay live.
        let to = if span.to < to { span.to } else { usize::MAX };
        blocks.push(Some(Block::one(Span { to, ..*span })));
    }
    // Blocks that live into the next period share the place of their predecessors.
    let mut as_before = Vec::new();
    for (at, span) in spans.iter().enumerate().skip(first) {
        if span.to < to {
            blocks.push(Some(Block::one(*span)));
        } else if span.to <= span.from + length {
            let before = at.checked_sub(apart)?;
            blocks.get_mut(before)?.as_mut()?.and(Span { to, ..*span });
            blocks.push(None);
            as_before.push((at, before));
        } else if span.bytes <= LOOSE {
            blocks.push(None);
        } else {
            return None;
        }
    }
    let present: Vec<Block> = blocks.iter().flatten().copied().collect();
    let placed = place::place(&present, budget);
    let mut places = placed.offsets.into_iter();
    let mut offsets: Vec<Option<u64>> = blocks
        .iter()
        .map(|block| block.as_ref().and_then(|_| places.next()))
        .collect();
    for (at, before) in as_before {
        let place = offsets.get(before).copied().flatten();
        if let Some(offset) = offsets.get_mut(at) {
            *offset = place;
        }
    }
    let steps = spans.iter().zip(offsets).map(|(span, offset)| Step {
        bytes: span.bytes,
        offset,
    });
    Some(Found {
        placement: PoolPlan::new(steps.collect(), Some(first)),
        covered: lives.allocations_before(period.to),
        least: placed.least,
    })
}
