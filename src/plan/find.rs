//! Plans from known lifetimes: an address for each block of a run, with the least memory.
//!
//! A run that repeats itself is planned up to its second period, which then follows itself for as long as the
//! program goes on like this; any other run is planned once, from its beginning.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::lives::{Lives, Span};
use super::place;
use super::repeat::{self, Period};
use crate::requests::Requests;
use gpushim_alloc::plan::{Family, Plans, PoolPlan, Step};

/// The most blocks that get an address: the time grows with their square, to some seconds. The pool places later blocks
/// itself.
pub const MOST: usize = 60_000;
/// Blocks up to this many bytes need no address if they outlive their period: they do not fragment the memory of large
/// blocks, since the pool keeps the two apart.
const LOOSE: u64 = 256 << 10;
/// Periods that are planned as one if blocks outlive a single period.
const TOGETHER: usize = 4;

/// A placement, and what it was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What a pool follows.
    pub placement: Arc<PoolPlan>,
    /// Allocations of the recording.
    pub allocations: usize,
    /// How many of them it holds for; those that come after are not foreseen.
    pub covered: usize,
    /// The highest sum of what these asked for and had not given back, bytes.
    pub peak_requested: u64,
}

impl Plan {
    /// For the requests of one family; `None` if there are none.
    pub fn of(requests: &Requests, family: Family) -> Option<Plan> {
        let lives = Lives::of(requests, family);
        if lives.spans.is_empty() {
            return None;
        }
        let period = repeat::find(&lives.tokens);
        let repeated = period.and_then(|period| repeating(&lives, period));
        let (placement, covered) = repeated.unwrap_or_else(|| once(&lives));
        Some(Plan {
            placement: Arc::new(placement),
            allocations: lives.spans.len(),
            covered,
            peak_requested: lives.peak(covered),
        })
    }
}

/// Whether the requests of each family repeat themselves, so that a plan can be followed over and over.
pub fn repeats(requests: &Requests) -> bool {
    let lives = [Family::Plain, Family::Streams].map(|family| Lives::of(requests, family));
    let mut all = lives.iter().filter(|lives| !lives.spans.is_empty());
    all.all(|lives| repeat::find(&lives.tokens).is_some())
}

/// For all pools of one device.
pub fn plans(device: i32, requests: &Requests) -> Plans {
    let mut plans = Plans::default();
    for family in [Family::Plain, Family::Streams] {
        if let Some(plan) = Plan::of(requests, family) {
            plans.pools.insert((device, family), plan.placement);
        }
    }
    plans
}

/// From the beginning, as far as it can be foreseen. Also how many allocations that is.
fn once(lives: &Lives) -> (PoolPlan, usize) {
    let spans: Vec<Span> = lives.spans.iter().take(MOST).copied().collect();
    let groups: Vec<place::Group> = spans.iter().map(|span| place::Group::one(*span)).collect();
    let offsets = place::place(&groups);
    let steps = spans.iter().zip(offsets).map(|(span, offset)| Step {
        bytes: span.bytes,
        offset: Some(offset),
    });
    (PoolPlan::new(steps.collect(), None), spans.len())
}

/// With a part that repeats. `None`: there are large blocks that outlive it, or too many blocks.
fn repeating(lives: &Lives, period: Period) -> Option<(PoolPlan, usize)> {
    (1..=TOGETHER).find_map(|times| {
        let length = period.length * times;
        // One before, so that what lives across its beginning is known, and one after, for the same at its end.
        let from = period.from + length;
        (from + 2 * length <= period.to).then(|| around(lives, period, from, length))?
    })
}

/// The period that begins at a request, and all before it.
fn around(lives: &Lives, period: Period, from: usize, length: usize) -> Option<(PoolPlan, usize)> {
    let to = from + length;
    let first = lives.allocations_before(from);
    let spans = lives.spans.get(..lives.allocations_before(to))?;
    if spans.len() > MOST {
        return None;
    }
    let apart = spans.len() - first;
    let mut groups: Vec<Option<place::Group>> = Vec::with_capacity(spans.len());
    for span in spans.get(..first)? {
        // Blocks that are not freed in this part stay live.
        let to = if span.to < to { span.to } else { usize::MAX };
        groups.push(Some(place::Group::one(Span { to, ..*span })));
    }
    // Blocks that live into the next period share the place of their predecessors.
    let mut as_before = Vec::new();
    for (at, span) in spans.iter().enumerate().skip(first) {
        if span.to < to {
            groups.push(Some(place::Group::one(*span)));
        } else if span.to <= span.from + length {
            let before = at.checked_sub(apart)?;
            groups.get_mut(before)?.as_mut()?.and(Span { to, ..*span });
            groups.push(None);
            as_before.push((at, before));
        } else if span.bytes <= LOOSE {
            groups.push(None);
        } else {
            return None;
        }
    }
    let present: Vec<place::Group> = groups.iter().flatten().cloned().collect();
    let mut places = place::place(&present).into_iter();
    let mut offsets: Vec<Option<u64>> = groups
        .iter()
        .map(|group| group.as_ref().and_then(|_| places.next()))
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
    let placement = PoolPlan::new(steps.collect(), Some(first));
    Some((placement, lives.allocations_before(period.to)))
}
