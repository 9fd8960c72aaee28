//! Whether memory grows with each iteration, by how much, who keeps it, and when it will be too much.

use serde::Serialize;

use crate::iterations::Iterations;
use crate::ledger::{Block, Focus, Held, LiveAt, Visitor, by_stack, walk};
use crate::recording::Recording;
use gpushim_trace::Record;

/// Fewer iterations after the warm-up say nothing.
const LEAST: usize = 5;
/// Growth of less than this over all of them is no finding, bytes: contexts of libraries and buffers of
/// logs come to as much.
const LEAST_BYTES: f64 = 256.0 * 1024.0;
/// Nor is growth by less than this part of the level.
const LEAST_SHARE: f64 = 0.001;
/// Of all pairs of iterations a quarter of them apart, how many must have grown.
const RISING: f64 = 0.9;
/// How much of the growth the last third must still have, against its part of it.
const LASTING: f64 = 0.5;

/// How memory went from iteration to iteration.
#[derive(Clone, Debug, Serialize)]
pub struct Growth {
    /// Iterations that were found, the first ones included.
    pub iterations: usize,
    /// The iteration from which on it is steady, from 0: those before it are the warm-up.
    pub steady_from: usize,
    /// When that began, ns since the start.
    pub steady_ns: u64,
    /// Bytes live at the beginning of each iteration.
    pub levels: Vec<u64>,
    /// What is added by each iteration after the warm-up, bytes; may be negative.
    pub per_iteration: f64,
    /// Mean duration of those, ns.
    pub iteration_ns: f64,
    /// Whether that is growth: lasting, to the end, and more than chance.
    pub grows: bool,
    /// Who keeps what was added, the greatest first.
    pub keepers: Vec<Keeper>,
}

/// Blocks of one stack that iterations left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Keeper {
    /// Id of the stack.
    pub stack: u32,
    /// Blocks that were kept.
    pub blocks: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes for each iteration.
    pub per_iteration: f64,
    /// Their part in what was kept, 0 to 1.
    pub share: f64,
}

impl Growth {
    /// Follows the blocks of a focus through iterations.
    pub fn of(recording: &dyn Recording, focus: Focus, iterations: &Iterations) -> Growth {
        let mut levels = Levels {
            iterations,
            next: 0,
            now: 0,
            levels: Vec::new(),
        };
        // Not at the end: programs take down at last what they leaked.
        let last = iterations.starts.iter().rev().nth(1);
        let mut live = LiveAt::new(last.map_or(0, |start| start.ticket));
        walk(recording, focus, &mut [&mut levels, &mut live]);
        Growth::new(recording, iterations, levels.levels, &live.into_blocks())
    }

    /// By what was live at the beginning of each iteration, bytes, and which blocks were at that of the last.
    pub fn new(
        recording: &dyn Recording,
        iterations: &Iterations,
        levels: Vec<u64>,
        live: &[Block],
    ) -> Growth {
        let steady_from = warm_up(&levels);
        let steady = levels.get(steady_from..).unwrap_or_default();
        let per_iteration = slope(steady);
        let start = |index: usize| iterations.starts.get(index).map_or(0, |start| start.ns);
        let last = levels.len().saturating_sub(1);
        let passed = start(last).saturating_sub(start(steady_from)) as f64;
        Growth {
            iterations: iterations.count(),
            steady_from,
            steady_ns: start(steady_from),
            grows: is_growth(steady, per_iteration),
            per_iteration,
            iteration_ns: passed / last.saturating_sub(steady_from).max(1) as f64,
            keepers: keepers(recording, live, iterations, (steady_from, last)),
            levels,
        }
    }

    /// Iterations until so many bytes more are live; `None` if it does not grow.
    pub fn iterations_until(&self, more: u64) -> Option<f64> {
        self.grows.then(|| more as f64 / self.per_iteration)
    }
}

/// Takes the level at the beginning of each iteration.
struct Levels<'a> {
    iterations: &'a Iterations,
    next: usize,
    now: u64,
    levels: Vec<u64>,
}

impl Visitor for Levels<'_> {
    fn event(&mut self, record: &Record) {
        let last = self.iterations.count();
        while self.next < last
            && let Some(start) = self.iterations.starts.get(self.next)
            && start.ticket <= record.ticket
        {
            self.levels.push(self.now);
            self.next += 1;
        }
    }

    fn allocated(&mut self, block: &Block) {
        self.now = self.now.saturating_add(block.size);
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        self.now = self.now.saturating_sub(block.size);
    }
}

/// How many of the first iterations are not like the rest: caches fill, optimizers make their state.
///
/// Most of what a steady run adds is added evenly. The warm-up ends where the level is first as near to
/// the line through the later half, carried back, as that half is itself; after two iterations at least.
fn warm_up(levels: &[u64]) -> usize {
    let count = levels.len();
    let least = 2.min(count);
    let half = count / 2;
    let later = levels.get(half..).unwrap_or_default();
    if later.len() < LEAST {
        return least.min(count.saturating_sub(LEAST).max(least));
    }
    let rise = slope(later);
    let line = |index: usize| level(levels, half) + rise * (index as f64 - half as f64);
    let off = |index: usize| (level(levels, index) - line(index)).abs();
    let usual = (half..count).map(off).fold(0.0, f64::max);
    // A little beyond what is usual is not another regime.
    let allowed = usual * 1.5 + rise.abs() * 2.0 + 1.0;
    let after = (0..half).rev().find(|index| off(*index) > allowed);
    after.map_or(least, |index| (index + 1).max(least))
}

fn level(levels: &[u64], index: usize) -> f64 {
    levels.get(index).map_or(0.0, |level| *level as f64)
}

/// The median of the slopes between pairs of points (Theil and Sen), which outliers do not move; of long
/// runs between pairs that are about half of them apart.
fn slope(levels: &[u64]) -> f64 {
    let count = levels.len();
    let mut slopes = Vec::new();
    let all = count <= 200;
    for from in 0..count {
        let step = if all {
            from + 1..count
        } else {
            from + count / 2..from + count / 2 + 1
        };
        for to in step.filter(|to| *to < count) {
            slopes.push((level(levels, to) - level(levels, from)) / (to - from) as f64);
        }
    }
    median(&mut slopes)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    if values.len().is_multiple_of(2) {
        f64::midpoint(at(middle.saturating_sub(1)), at(middle))
    } else {
        at(middle)
    }
}

/// Whether a slope is growth and not chance, a cache that fills, or noise.
fn is_growth(steady: &[u64], slope: f64) -> bool {
    let count = steady.len();
    let total = slope * (count.saturating_sub(1)) as f64;
    let top = steady.iter().max().copied().unwrap_or(0) as f64;
    if count < LEAST || total < LEAST_BYTES || total < LEAST_SHARE * top {
        return false;
    }
    let apart = (count / 4).max(1);
    let pairs = steady.windows(apart + 1);
    let rising = pairs
        .clone()
        .filter(|pair| pair.last() > pair.first())
        .count();
    let third = count - (count / 3).max(2);
    let first = steady.first().copied().unwrap_or(0) as f64;
    let grown = level(steady, count - 1) - first;
    let late = level(steady, count - 1) - level(steady, third);
    let fair = grown * (count - 1 - third) as f64 / (count - 1) as f64;
    rising as f64 >= RISING * pairs.len() as f64 && late >= LASTING * fair
}

/// What iterations of the steady part left behind that a later iteration still held: of all but the last
/// two, whose blocks may be in use.
fn keepers(
    recording: &dyn Recording,
    live: &[Block],
    iterations: &Iterations,
    (from, last): (usize, usize),
) -> Vec<Keeper> {
    let until = last.saturating_sub(1);
    let spanned = until.saturating_sub(from).max(1) as f64;
    let is_kept = |block: &&Block| {
        let of = iterations.of(block.ticket);
        of.is_some_and(|iteration| (from..until).contains(&iteration))
    };
    let kept = by_stack(recording, live.iter().filter(is_kept));
    let all = kept
        .iter()
        .fold(0_u64, |sum, kept| sum.saturating_add(kept.bytes));
    let keeper = |held: Held| Keeper {
        stack: held.stack,
        blocks: held.blocks,
        bytes: held.bytes,
        per_iteration: held.bytes as f64 / spanned,
        share: held.bytes as f64 / all.max(1) as f64,
    };
    kept.into_iter().map(keeper).collect()
}

#[cfg(test)]
mod tests;
