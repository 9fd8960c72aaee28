//! Groups similar falls, and finds the lasting ones.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::fall::{Cause, Drop, Fall, Fallen, Gone, most};
use super::swing::Point;
use crate::ledger::by_stack;
use crate::loops::{Iterations, without_numbers};
use crate::recording::Recording;

/// Stacks that are kept for each group: those with most bytes.
const HOLDERS: usize = 5;
/// The most groups of falls by cause and stacks, and the most falls that are candidates for lasting ones.
const MOST: usize = 1000;

/// The key of a group: the cause, and the frames that had allocated the blocks.
type Key = (Cause, u64);

pub(super) struct Gather<'a> {
    recording: &'a dyn Recording,
    iterations: Option<&'a Iterations>,
    /// The least fall, bytes.
    pub least: u64,
    all: FxHashMap<Key, Drop>,
    /// The latest: what comes after it says whether it was the run's end.
    latest: Option<Fall>,
    /// Bytes allocated since the latest, and the highest that was live since.
    since: (u64, u64),
    /// The same since the lowest level lately, where the next fall may turn out to have ended.
    since_low: (u64, u64),
    /// Bytes allocated in all.
    allocated: u64,
    /// Those that may last.
    may_last: Vec<Candidate>,
}

/// A fall that may last.
struct Candidate {
    drop: Drop,
    key: Key,
    /// The highest that was live from here to the next of them.
    highest: u64,
    /// Bytes that had been allocated in all.
    allocated: u64,
}

impl<'a> Gather<'a> {
    pub fn new(
        recording: &'a dyn Recording,
        iterations: Option<&'a Iterations>,
        least: u64,
    ) -> Gather<'a> {
        Gather {
            recording,
            iterations,
            least,
            all: FxHashMap::default(),
            latest: None,
            since: (0, 0),
            since_low: (0, 0),
            allocated: 0,
            may_last: Vec::new(),
        }
    }

    /// Something was allocated, and then so much was live.
    pub fn allocated(&mut self, bytes: u64, now: u64) {
        for since in [&mut self.since, &mut self.since_low] {
            *since = (since.0.saturating_add(bytes), since.1.max(now));
        }
        self.allocated = self.allocated.saturating_add(bytes);
        if let Some(last) = self.may_last.last_mut() {
            last.highest = last.highest.max(now);
        }
    }

    /// How many iterations had begun before an event.
    pub fn begun(&self, ticket: u64) -> usize {
        let starts = self.iterations.map(|all| all.starts.as_slice());
        let starts = starts.unwrap_or_default();
        starts.partition_point(|start| start.ticket <= ticket)
    }

    /// Bytes allocated since the lowest level lately.
    pub fn allocated_since_low(&self) -> u64 {
        self.since_low.0
    }

    /// What is live is as low as not since the last fall.
    pub fn low(&mut self) {
        self.since_low = (0, 0);
    }

    /// Adds a fall, after memory has risen again or at the end of the run.
    pub fn take(&mut self, fall: Fall) {
        let since = std::mem::replace(&mut self.since, self.since_low);
        if let Some(before) = self.latest.replace(fall) {
            self.tell(&before, true, since);
        }
    }

    /// All, those that last first.
    pub fn finish(mut self) -> Vec<Drop> {
        if let Some(last) = self.latest.take() {
            let since = self.since;
            self.tell(&last, since.0 >= self.least, since);
        }
        let mut highest = 0;
        for mut one in std::mem::take(&mut self.may_last).into_iter().rev() {
            highest = one.highest.max(highest);
            let fallen = &mut one.drop.largest;
            let stays = fallen.from.saturating_sub(highest);
            let lasts = one.drop.cause == Cause::ContextReset || stays >= self.least;
            // Not if the run is nearly over.
            let goes_on = self.allocated.saturating_sub(one.allocated) >= fallen.from;
            fallen.lasting = (lasts && goes_on).then_some(stays);
            self.add(one.drop, one.key);
        }
        let mut drops: Vec<Drop> = self.all.into_values().collect();
        drops.sort_by_key(|drop| {
            let bytes = drop.largest.from.saturating_sub(drop.largest.to);
            (
                Reverse((drop.largest.lasting, drop.times, bytes)),
                drop.first_ns,
            )
        });
        drops
    }

    fn tell(&mut self, fall: &Fall, goes_on: bool, (since, highest): (u64, u64)) {
        let (drop, key) = self.one(fall, goes_on);
        let is_deeper = drop.largest.below >= self.least || drop.cause == Cause::ContextReset;
        if goes_on && is_deeper && self.may_last.len() < MOST {
            let allocated = self.allocated.saturating_sub(since);
            self.may_last.push(Candidate {
                drop,
                key,
                highest,
                allocated,
            });
        } else {
            self.add(drop, key);
        }
    }

    fn add(&mut self, drop: Drop, key: Key) {
        if self.all.len() >= MOST && !self.all.contains_key(&key) {
            return;
        }
        match self.all.get_mut(&key) {
            None => {
                self.all.insert(key, drop);
            }
            Some(known) => {
                known.times += drop.times;
                known.iterations += u64::from(known.latest != drop.latest);
                known.latest = drop.latest;
                known.first_ns = known.first_ns.min(drop.first_ns);
                let rank = |one: &Fallen| (one.lasting, one.from.saturating_sub(one.to));
                if rank(&drop.largest) > rank(&known.largest) {
                    known.largest = drop.largest;
                }
            }
        }
    }

    fn one(&self, fall: &Fall, goes_on: bool) -> (Drop, Key) {
        let Fall { from, to, gone, .. } = fall;
        let iteration = self.iterations.and_then(|all| all.of(from.ticket));
        let bytes = |gone: &Gone| gone.block.size;
        let by = most(gone.iter().map(|gone| (gone.by, bytes(gone)))).unwrap_or(0);
        let thread = most(gone.iter().map(|gone| (gone.thread, bytes(gone))));
        let of_context = gone.iter().filter(|gone| gone.by_context);
        let of_context = of_context.fold(0_u64, |sum, gone| sum.saturating_add(bytes(gone)));
        let range = self.recording.open_ranges(by).into_iter().next();
        let fell = from.bytes.saturating_sub(to.bytes);
        let cause = match range {
            _ if of_context > fell / 2 => Cause::ContextReset,
            _ if !goes_on => Cause::EndOfRun,
            Some(name) => Cause::Range(without_numbers(&name)),
            None if self.begun(from.ticket) < self.begun(to.ticket) => Cause::EndOfIteration,
            None => Cause::Freed,
        };
        let mut holders = by_stack(self.recording, gone.iter().map(|gone| &gone.block));
        holders.truncate(HOLDERS);
        let frames = holders
            .first()
            .map(|held| self.recording.frames(held.stack));
        let drop = Drop {
            cause: cause.clone(),
            times: 1,
            iterations: u64::from(iteration.is_some()),
            latest: iteration,
            first_ns: from.ns,
            largest: Fallen {
                iteration,
                below: fall.low_before.saturating_sub(to.bytes),
                thread: thread.unwrap_or(0),
                freed_by: by,
                holders,
                ..Fallen::between(*from, *to)
            },
        };
        (drop, (cause, frames.unwrap_or(0)))
    }
}

impl Fallen {
    fn between(from: Point, to: Point) -> Fallen {
        Fallen {
            ns: from.ns,
            took_ns: to.ns.saturating_sub(from.ns),
            iteration: None,
            from: from.bytes,
            to: to.bytes,
            below: 0,
            lasting: None,
            thread: 0,
            freed_by: 0,
            holders: Vec::new(),
        }
    }
}

impl Drop {
    /// A fall of reserved memory, not of live memory.
    pub(super) fn trimmed(from: Point, to: Point) -> Drop {
        Drop {
            cause: Cause::Trimmed,
            times: 1,
            iterations: 0,
            latest: None,
            first_ns: from.ns,
            largest: Fallen::between(from, to),
        }
    }
}
