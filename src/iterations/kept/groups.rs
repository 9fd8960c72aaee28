//! What is live at the beginning of the last iteration, by group, with what was left behind of each.

use rustc_hash::FxHashMap;

use super::level::Steady;
use super::pattern::{Birth, Enough, History, median, rate};
use super::{Group, Lifetimes, born};
use crate::ledger::{Block, Held};
use crate::recording::Recording;

/// What was left behind must come to this part of the most that was live.
const LEAST_SHARE: f64 = 0.0008;

/// What a run keeps.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Bytes live at the beginning of each iteration.
    pub levels: Vec<u64>,
    /// The most bytes that were live.
    pub highest: u64,
    /// The blocks that were live when the last iteration began, or at the end where there are none; the oldest first.
    pub live: Vec<Block>,
    /// Those by group: what iterations left behind first, then those with most bytes.
    pub groups: Vec<KeptGroup>,
}

/// Blocks of one stack, or of one size where no stack was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptGroup {
    /// The blocks.
    pub held: Held,
    /// Their size, bytes, if that is all that is known.
    pub size: Option<u64>,
    /// In how many iterations they were allocated.
    pub iterations: usize,
    /// If iterations left them behind: how.
    pub left: Option<Left>,
}

/// How blocks are left behind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    /// Bytes for each iteration.
    pub per_iteration: f64,
    /// Every how many iterations.
    pub every: f64,
    /// The first iteration of those.
    pub from: usize,
}

/// The blocks of a group.
#[derive(Default)]
struct Blocks<'a> {
    /// Whether they were made before the recording began, and have no stack.
    are_earlier: bool,
    all: Vec<(Option<usize>, &'a Block)>,
}

impl Kept {
    pub(super) fn new(
        recording: &dyn Recording,
        mut lifetimes: Lifetimes,
        live: Vec<Block>,
    ) -> Kept {
        let last = lifetimes.starts.len().saturating_sub(1);
        let enough = match lifetimes.are_set {
            true => Enough::of_set(last),
            false => Enough::FOUND,
        };
        let mut of = FxHashMap::<Group, Blocks>::default();
        for block in &live {
            let group = lifetimes.groups.of(recording, block);
            let iteration = born(&lifetimes.starts, block.ticket).filter(|_| block.ticket > 0);
            let blocks = of.entry(group).or_default();
            blocks.are_earlier = group == Group::Earlier;
            blocks.all.push((iteration, block));
        }
        let none = History::default();
        let mut groups = Vec::new();
        let mut some_size_is_left = false;
        for (group, blocks) in &of {
            let history = lifetimes.histories.get(group).unwrap_or(&none);
            let size = match group {
                Group::Size(size) => Some(*size),
                Group::Stack(_) | Group::Earlier => None,
            };
            let split = blocks.split(last, history, enough, size);
            some_size_is_left |= size.is_some() && split.iter().any(|one| one.left.is_some());
            groups.extend(split);
        }
        if !some_size_is_left && Steady::of(&lifetimes.levels).rises {
            of.retain(|group, _| matches!(group, Group::Size(_)));
            groups = of_many_sizes(&of, groups, (last, enough), &lifetimes.histories);
        }
        let left = groups.iter().filter(|group| group.left.is_some());
        let left = left.fold(0_u64, |sum, group| sum.saturating_add(group.held.bytes));
        if (left as f64) < LEAST_SHARE * lifetimes.highest as f64 {
            groups.iter_mut().for_each(|group| group.left = None);
        }
        groups.sort_unstable_by_key(|group| {
            let held = &group.held;
            (
                group.left.is_none(),
                std::cmp::Reverse(held.bytes),
                held.stack,
                group.size,
            )
        });
        Kept {
            levels: lifetimes.levels,
            highest: lifetimes.highest,
            groups,
            live,
        }
    }
}

/// Without stacks, of sizes that differ: all of them together.
fn of_many_sizes(
    of: &FxHashMap<Group, Blocks>,
    groups: Vec<KeptGroup>,
    (last, enough): (usize, Enough),
    histories: &FxHashMap<Group, History>,
) -> Vec<KeptGroup> {
    let mut all = Blocks::default();
    let mut history = History::default();
    for (group, blocks) in of {
        all.all.extend(&blocks.all);
        if let Some(one) = histories.get(group) {
            history.with(one);
        }
    }
    all.all
        .sort_unstable_by_key(|(_, block)| (block.ns, block.ticket, block.address));
    let together = all.split(last, &history, enough, None);
    if together.iter().all(|group| group.left.is_none()) {
        return groups;
    }
    let mut groups = groups;
    groups.retain(|group| group.size.is_none());
    groups.extend(together);
    groups
}

impl Blocks<'_> {
    /// What was left behind, and the rest; all of it together where nothing was.
    fn split(
        &self,
        last: usize,
        history: &History,
        enough: Enough,
        size: Option<u64>,
    ) -> Vec<KeptGroup> {
        let mut births: Vec<Birth> = Vec::new();
        for (iteration, block) in &self.all {
            let Some(iteration) = iteration.filter(|iteration| *iteration < last) else {
                continue;
            };
            match births.last_mut() {
                Some(birth) if birth.iteration == iteration => {
                    birth.blocks += 1;
                    birth.bytes = birth.bytes.saturating_add(block.size);
                }
                _ => births.push(Birth {
                    iteration,
                    blocks: 1,
                    bytes: block.size,
                }),
            }
        }
        let left = rate(&births, last, history, enough).map(|rate| Left {
            per_iteration: rate.per_iteration,
            every: rate.every,
            from: rate.from,
        });
        let Some(left) = left else {
            return self
                .group(size, births.len(), None, |_| true)
                .into_iter()
                .collect();
        };
        // Blocks that one of the first iterations made beside those are of another kind.
        let usual = median(births.iter().map(|birth| birth.blocks));
        let mut counts = FxHashMap::<usize, u64>::default();
        let is_left: Vec<bool> = (self.all.iter())
            .map(|(iteration, _)| {
                iteration.is_some_and(|iteration| {
                    let count = counts.entry(iteration).or_default();
                    *count += 1;
                    size.is_none() || *count <= usual
                })
            })
            .collect();
        let is_left = |at: usize| is_left.get(at).copied().unwrap_or(false);
        let others = self.group(size, 0, None, |at| !is_left(at));
        let leaking = self.group(size, births.len(), Some(left), is_left);
        leaking.into_iter().chain(others).collect()
    }

    fn group(
        &self,
        size: Option<u64>,
        iterations: usize,
        left: Option<Left>,
        wanted: impl Fn(usize) -> bool,
    ) -> Option<KeptGroup> {
        let mut blocks = (0..)
            .zip(&self.all)
            .filter(|(at, _)| wanted(*at))
            .map(|(_, (_, block))| *block);
        let first = blocks.next()?;
        let held = Held {
            stack: first.stack,
            blocks: 1,
            bytes: first.size,
            oldest_ns: first.ns,
            newest_ns: first.ns,
            earlier: self.are_earlier,
        };
        let held = blocks.fold(held, |held, block| Held {
            blocks: held.blocks + 1,
            bytes: held.bytes.saturating_add(block.size),
            oldest_ns: held.oldest_ns.min(block.ns),
            newest_ns: held.newest_ns.max(block.ns),
            ..held
        });
        Some(KeptGroup {
            held,
            size,
            iterations,
            left,
        })
    }
}
