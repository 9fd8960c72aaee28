//! Whether what iterations keep is left behind for good: in each of them or each n-th one, up to the end, and longer than
//! anything of its kind that came back.
//!
//! What a run may keep and is no leak:
//! - a cache that fills, an optimizer's state, weights that come late: what is kept is of a few iterations, not of all;
//! - a workspace for each shape of a batch: it comes ever more rarely, and no size comes again;
//! - what is given back every n-th iteration, or at the end of a sequence: others of its kind have come back already.

use super::level::slope;

/// Blocks that live on for fewer iterations are those that a step hands to the next one.
pub(super) const LONG: usize = 2;
/// Iterations that must have left something behind.
const FEWEST: usize = 3;
/// With fewer than these they must be alike in what they left.
const FEW: usize = 8;
/// Iterations from the first that left something to the last.
const SPAN: usize = 8;
/// The same as a part of all.
const PART: f64 = 0.3;
/// How many of the distances between them must be the usual one.
const REGULAR: f64 = 0.8;
/// From this many iterations on, the distances may be irregular if the iterations are spread evenly over the run.
const MANY: usize = 12;
/// The fewest of one half against those of the other.
const EVEN: f64 = 0.6;
/// What is left must be older than what came back, by this factor.
const OLDER: usize = 2;
/// Lifetimes that are no mere delay, in iterations.
const DELAY: usize = 4;

/// Blocks of a group that lived for some iterations and were freed.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    longest: usize,
    /// By the iteration that they were born in: how long they lived at most, and how many there were.
    lives: Vec<(u32, u32, u32)>,
}

impl History {
    /// A block lived from one iteration on for a number of them; whether it takes a place of its own.
    pub(super) fn add(&mut self, born: usize, lived: usize) -> bool {
        self.longest = self.longest.max(lived);
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let (born, lived) = (short(born), short(lived));
        if let Some((last, most, count)) = self.lives.last_mut()
            && *last == born
        {
            *most = lived.max(*most);
            *count = count.saturating_add(1);
            return false;
        }
        self.lives.push((born, lived, 1));
        true
    }

    /// Both.
    pub(super) fn with(&mut self, other: &History) {
        self.longest = self.longest.max(other.longest);
        self.lives.extend(&other.lives);
    }

    /// Of those that lived for long and were born before an iteration, or since: how many.
    fn count(&self, first: usize) -> (u64, u64) {
        let long = self
            .lives
            .iter()
            .filter(|(_, most, _)| *most as usize >= DELAY);
        long.fold((0, 0), |(before, since), (born, _, count)| {
            if (*born as usize) < first {
                (before + u64::from(*count), since)
            } else {
                (before, since + u64::from(*count))
            }
        })
    }
}

/// What an iteration left behind of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    pub(super) iteration: usize,
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// How a group grows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    /// Bytes for each iteration.
    pub(super) per_iteration: f64,
    /// Every how many iterations.
    pub(super) every: f64,
    /// The first iteration of those.
    pub(super) from: usize,
}

/// How much must be left behind for it to be left behind for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enough {
    /// Iterations that left something behind.
    births: usize,
    /// Those of them that must be old.
    old: usize,
    /// Iterations from the first of them to the last.
    span: usize,
}

impl Enough {
    /// Of iterations that were found.
    pub(super) const FOUND: Enough = Enough {
        births: FEWEST,
        old: FEWEST,
        span: SPAN,
    };

    /// Of iterations that the user set, with the number of the last one: a few tell, too.
    pub(super) fn of_set(last: usize) -> Enough {
        let before = last.saturating_sub(1);
        Enough {
            births: FEWEST.min(before).max(2),
            old: FEWEST.min(last.div_ceil(2)),
            span: SPAN.min(before).max(1),
        }
    }
}

/// How a group grows by what iterations left behind before iteration `last`, in their order; `None` if it is not left
/// behind.
pub(super) fn rate(
    births: &[Birth],
    last: usize,
    history: &History,
    enough: Enough,
) -> Option<Rate> {
    let first = births.first()?.iteration;
    let newest = births.last()?.iteration;
    let span = last.saturating_sub(first);
    if births.len() < enough.births || span < enough.span || (span as f64) < PART * last as f64 {
        return None;
    }
    let age = (OLDER * history.longest + 1).max(LONG);
    let is_old = |birth: &&Birth| last.saturating_sub(birth.iteration) >= age;
    if births.iter().filter(is_old).count() < enough.old {
        return None;
    }
    let blocks = births
        .iter()
        .fold(0, |sum: u64, birth| sum.saturating_add(birth.blocks));
    let (before, since) = history.count(first);
    if before >= FEWEST as u64 || since > blocks.saturating_mul(2) {
        return None;
    }
    let gaps: Vec<usize> = births
        .windows(2)
        .filter_map(|pair| Some(pair.last()?.iteration - pair.first()?.iteration))
        .collect();
    let usual = median(gaps.iter().map(|gap| *gap as u64)) as usize;
    // An iteration may be seen to begin a little before or after such an allocation.
    let tolerance = usize::from(usual > 1);
    let near = gaps.iter().filter(|gap| gap.abs_diff(usual) <= tolerance);
    let is_regular = near.count() as f64 >= REGULAR * gaps.len() as f64;
    let typical = median(births.iter().map(|birth| birth.bytes));
    let alike = births.iter().filter(|birth| birth.bytes == typical).count();
    let every = (newest - first) as f64 / gaps.len() as f64;
    let follows = if is_regular {
        let is_each = usual == 1 && gaps.iter().all(|gap| *gap == 1);
        if births.len() < FEW && !is_each && alike * 4 < births.len() * 3 {
            return None;
        }
        usual + tolerance
    } else {
        let middle = first + span / 2;
        let early = births
            .iter()
            .filter(|birth| birth.iteration < middle)
            .count();
        let late = births.len() - early;
        let is_even = early.min(late) as f64 >= EVEN * early.max(late) as f64;
        if births.len() < MANY || !is_even || alike == 1 {
            return None;
        }
        (2.0 * every) as usize + 1
    };
    if last - newest > follows {
        return None;
    }
    // What the first left says nothing of how fast it grows. More than two of them in one iteration are of another kind,
    // where most iterations leave the same.
    let mostly_alike = alike * 4 >= births.len() * 3;
    let most = if mostly_alike {
        typical.saturating_mul(2)
    } else {
        u64::MAX
    };
    let later = births.iter().skip(1);
    let later = later.fold(0_u64, |sum, birth| {
        sum.saturating_add(birth.bytes.min(most))
    });
    let per_iteration = if mostly_alike && gaps.iter().all(|gap| *gap == usual) {
        typical as f64 / every
    } else if mostly_alike && usual == 1 {
        slope(&sums(births, most))
    } else {
        later as f64 / (newest - first) as f64
    };
    Some(Rate {
        per_iteration,
        every,
        from: first,
    })
}

/// Bytes that were left behind up to each iteration, from the first that left some to the newest.
fn sums(births: &[Birth], most: u64) -> Vec<u64> {
    let mut sums = Vec::new();
    let first = births.first().map_or(0, |birth| birth.iteration);
    let mut sum = 0_u64;
    for birth in births {
        sums.resize((birth.iteration - first).max(sums.len()), sum);
        sum = sum.saturating_add(birth.bytes.min(most));
        sums.push(sum);
    }
    sums
}

/// The median, the upper of two.
pub(super) fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
