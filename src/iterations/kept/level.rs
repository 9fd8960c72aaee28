//! How the level of live memory goes from iteration to iteration: where the warm-up ends, and whether it rises.

/// Fewer iterations after the warm-up say nothing.
const LEAST: usize = 5;
/// Growth of less than this part of the level is none.
const LEAST_SHARE: f64 = 0.001;
/// Of all pairs of iterations a quarter of them apart, how many must have grown.
const RISING: f64 = 0.9;
/// How much of the growth the last third must still have, against its part of it.
const LASTING: f64 = 0.5;

/// The levels at the beginning of each iteration, bytes, after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// The iteration from which on it is steady, from 0.
    pub from: usize,
    /// What is added by each iteration since, bytes; may be negative.
    pub per_iteration: f64,
    /// Whether that is more than chance, and lasts to the end.
    pub rises: bool,
}

impl Steady {
    /// Of the levels at the beginning of each iteration, bytes.
    pub fn of(levels: &[u64]) -> Steady {
        let from = warm_up(levels);
        let steady = levels.get(from..).unwrap_or_default();
        let per_iteration = slope(steady);
        Steady {
            from,
            per_iteration,
            rises: rises(steady, per_iteration),
        }
    }
}

/// The number of first iterations that differ from the rest: caches fill, optimizers allocate their state.
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
    // A small deviation is not another regime.
    let allowed = usual * 1.5 + rise.abs() * 2.0 + 1.0;
    let after = (0..half).rev().find(|index| off(*index) > allowed);
    after.map_or(least, |index| (index + 1).max(least))
}

fn level(levels: &[u64], index: usize) -> f64 {
    levels.get(index).map_or(0.0, |level| *level as f64)
}

/// The median of the slopes between pairs of points (Theil and Sen), which outliers do not move; of long
/// runs between pairs that are about half of them apart.
pub(super) fn slope(levels: &[u64]) -> f64 {
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
fn rises(steady: &[u64], slope: f64) -> bool {
    let count = steady.len();
    let total = slope * (count.saturating_sub(1)) as f64;
    let top = steady.iter().max().copied().unwrap_or(0) as f64;
    if count < LEAST || total <= 0.0 || total < LEAST_SHARE * top {
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
