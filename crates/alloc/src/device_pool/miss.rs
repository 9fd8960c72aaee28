//! One request that no ready block answered: what to do next, decided under the lock and done
//! without it.

use super::block::Fit;
use super::fences::{Contexts, Events};
use super::state::State;
use crate::policy::Reuse;
use crate::rules;
use crate::size_class;
use crate::types::{Grant, Source};

/// How often one request waits for a fence whose blocks others then take, before it grows.
const TRIES: u32 = 8;

/// A request on its way.
pub(super) struct Miss {
    pub bytes: u64,
    /// The arena's serial number.
    pub arena: u64,
    /// What a block from the cache will have cost.
    pub source: Source,
    tries: u32,
    /// Fences did not work out: grow.
    pub unfenced: bool,
    /// The last fence that was seen to be incomplete.
    pub incomplete: u64,
    /// Request no more from the driver than necessary.
    pub exact: bool,
    /// Any block will do that is not much too large.
    pub loose: bool,
    /// What threads had at hand has been flushed for this one.
    pub flushed: bool,
    /// Old blocks have been given back for this one.
    pub shared: bool,
    /// How far memory has been scraped together after the driver had none.
    pub scraped: u32,
    /// How often what waits for captures has been taken back.
    pub given_up: u32,
    /// Memory on its way back to the driver has been waited for.
    pub paused: bool,
}

/// What to do next.
pub(super) enum Step<E> {
    /// Hand it out.
    Done(Grant),
    /// Ask whether a fence is complete.
    Query(u64, Events<E>),
    /// Record the events of a fence that was just closed in these contexts and, if the second list is
    /// there, make later work of those wait for them at once. The version as for `Order`.
    Record(u64, Contexts, Option<Contexts>, u64),
    /// Make later work of these contexts wait for a fence. The version tells whether these are
    /// still all of them afterwards.
    Order(u64, Events<E>, Contexts, u64),
    /// Wait for a fence.
    Wait(u64, Events<E>),
    /// Request this number of bytes from the driver.
    Grow(u64),
    /// The context is gone.
    Gone,
}

impl Miss {
    pub fn new(bytes: u64, arena: u64) -> Self {
        Miss {
            bytes,
            arena,
            source: Source::Hit,
            tries: 0,
            unfenced: false,
            incomplete: 0,
            exact: false,
            loose: false,
            flushed: false,
            shared: false,
            scraped: 0,
            given_up: 0,
            paused: false,
        }
    }

    /// Bytes to request from the driver.
    fn growth(&self) -> u64 {
        match self.exact {
            true => size_class::page_bytes(self.bytes),
            false => size_class::block_bytes(self.bytes),
        }
    }
}

impl<E: Copy> State<E> {
    /// The next step towards a block.
    pub fn step(&mut self, miss: &mut Miss) -> Step<E> {
        let Some(index) = self.index(miss.arena) else {
            return Step::Gone;
        };
        let found = if miss.loose {
            self.take_loosely(index, miss.bytes, miss.source)
        } else {
            self.take(index, miss.bytes, miss.source)
        };
        let may_fence = rules::may_call(rules::Call::Fence, self.captures.is_open());
        let fence = match found {
            Ok(grant) => return Step::Done(grant),
            Err(Fit::Pending(fence)) if miss.tries < TRIES && !miss.unfenced && may_fence => fence,
            Err(Fit::Pending(_)) if !miss.loose => {
                miss.loose = true;
                return self.step(miss);
            }
            Err(_) => return Step::Grow(miss.growth()),
        };
        let reuse = self.settings.reuse;
        let version = self.version;
        let Some(Some(arena)) = self.arenas.get_mut(index) else {
            return Step::Gone;
        };
        let Some((id, events)) = arena.fences.timeline.covering(fence) else {
            miss.tries += 1;
            let id = arena.fences.timeline.close();
            let all = self.cover(miss.arena).contexts;
            let later = (reuse == Reuse::Order).then(|| rules::to_order(all.clone()));
            return Step::Record(id, all, later, version);
        };
        if miss.incomplete < id {
            return Step::Query(id, events);
        }
        miss.tries += 1;
        match reuse {
            Reuse::Order => {
                let all = self.cover(miss.arena).contexts;
                Step::Order(id, events, rules::to_order(all), version)
            }
            Reuse::Wait | Reuse::Strict => Step::Wait(id, events),
        }
    }

    /// Bytes by which new memory would take the arena beyond its share.
    pub fn excess(&self, miss: &Miss, bytes: u64) -> u64 {
        let Some(arena) = self.arena(miss.arena) else {
            return 0;
        };
        let peak = arena
            .recent_peak()
            .max(arena.allocated.saturating_add(bytes));
        let share = u128::from(peak) * u128::from(self.settings.share) / 100;
        let share = u64::try_from(share)
            .unwrap_or(u64::MAX)
            .max(self.settings.floor);
        arena.reserved.saturating_add(bytes).saturating_sub(share)
    }
}
