//! Growth of memory through the passes of a loop, and the loop to which the growth of a run
//! belongs.

use crate::repeats::series::Levels;
use crate::repeats::trend::{Course, course, median, steady};
use crate::repeats::walk::Loop;

/// Number of passes up to which growth is only likely, and its absence is not reported.
pub const FEW: u64 = 8;
/// Least part of the run's growth that a loop must explain to be chosen before one around it.
const EXPLAINS: f64 = 0.9;
/// Part of the kept sizes that must come again in another pass. If fewer do, each block has a key
/// of its own.
const AGAIN: f64 = 0.25;
/// Numbers of sizes of a cache by key. Fewer sizes prove nothing, and more are growth whatever
/// their keys.
const KEYED: std::ops::RangeInclusive<u64> = 3..=64;
/// Factor by which the volume of a pass may grow more than a block that is made anew.
const TEMPORARY: f64 = 2.5;
/// Relative distance allowed between the usual change of such a block and the mean.
const NEAR: f64 = 0.25;
/// Part of the changes of such a block that must be nearly the same.
const SAME: f64 = 0.7;
/// Changes in the steady part that are more than a few.
const STRONG: usize = 6;
/// Factor between two levels at which the inner one has several additions in each pass of the outer
/// one.
const FINER: f64 = 1.8;
/// Factor up to which distances between the passes that add something are about the same.
const SAME_EVERY: f64 = 1.2;
/// Part of the run: a loop whose last pass ends before it has ended before the rest of the run.
const ENDED: f64 = 0.85;
/// Part of the run for a loop of few passes, which may be no longer than the work after them.
const ENDED_OF_FEW: f64 = 0.6;

/// Way in which a group grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// More and more blocks are live.
    Kept,
    /// Each block replaces a smaller one; the number stays.
    Anew,
}

/// Group that grows with the passes of a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grown<K> {
    /// The group whose memory grows.
    pub group: K,
    /// The way in which it grows.
    pub kind: Kind,
    /// Course of its bytes by pass.
    pub course: Course,
    /// Bytes that were added from the first pass to the last.
    pub bytes: u64,
    /// Blocks that were added to it.
    pub blocks: u64,
}

/// Memory that the passes of a loop leave.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth<K> {
    /// The groups that grow, the fastest first.
    pub grown: Vec<Grown<K>>,
    /// Bytes that each pass adds.
    pub rate: f64,
    /// True if passes leave about the same of most of it.
    pub is_even: bool,
    /// Groups whose blocks each have a size of their own, as in a cache by key.
    pub keyed: usize,
    /// Groups that rise, neither evenly nor to the end.
    pub uneven: usize,
    /// Groups that are larger because the batches are.
    pub batches: usize,
}

/// A loop, and the memory that its passes leave.
#[derive(Clone, Debug)]
pub struct Level<K> {
    /// Number of the loop in its list.
    pub number: usize,
    /// Memory that its passes leave.
    pub growth: Growth<K>,
}

impl<K: Copy + Ord> Growth<K> {
    /// Judges the levels of a loop. `volumes` has the bytes made up to each pass. `sizes` counts a
    /// group's kept sizes, and the kept sizes made by several passes.
    pub fn of(
        levels: impl Iterator<Item = Levels<K>>,
        volumes: &[u64],
        sizes: &dyn Fn(&K) -> (u64, u64),
    ) -> Growth<K> {
        let mut growth = Growth {
            grown: Vec::new(),
            rate: 0.0,
            is_even: false,
            keyed: 0,
            uneven: 0,
            batches: 0,
        };
        for one in levels {
            let bytes: Vec<u64> = one.at.iter().map(|live| live.bytes).collect();
            let course = course(&bytes);
            if !course.grows() {
                growth.uneven += usize::from(course == Course::Uneven);
                continue;
            }
            let from = steady(bytes.len().saturating_sub(1));
            let blocks =
                |at: Option<&crate::repeats::series::Live>| at.map_or(0, |live| live.blocks);
            let more = blocks(one.at.last()).saturating_sub(blocks(one.at.get(from)));
            let passes = (bytes.len() - 1).saturating_sub(from) as u64;
            let is_kept = match course {
                Course::Sparse { rises, .. } => more >= rises.0 as u64,
                _ => more * 2 >= passes,
            };
            let kind = if is_kept { Kind::Kept } else { Kind::Anew };
            let (different, again) = sizes(&one.group);
            if is_kept && KEYED.contains(&different) && (again as f64) < AGAIN * different as f64 {
                growth.keyed += 1;
                continue;
            }
            let is_even = matches!(course, Course::Even { .. });
            let is_anew = is_even && is_larger_each_time(&bytes, volumes, course.rate());
            if !(is_kept || is_anew) {
                growth.batches += 1;
                continue;
            }
            let add = |first: u64, last: u64| last.saturating_sub(first);
            let first = one.at.first().copied().unwrap_or_default();
            let last = one.at.last().copied().unwrap_or_default();
            growth.grown.push(Grown {
                group: one.group,
                kind,
                course,
                bytes: add(first.bytes, last.bytes),
                blocks: add(first.blocks, last.blocks),
            });
        }
        let rate = |one: &Grown<K>| one.course.rate();
        growth
            .grown
            .sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(a.group.cmp(&b.group)));
        growth.rate = growth.grown.iter().map(rate).sum();
        let even = growth
            .grown
            .iter()
            .filter(|one| matches!(one.course, Course::Even { .. }));
        let even: f64 = even.map(rate).sum();
        growth.is_even = even > 0.0 && even >= EXPLAINS * growth.rate;
        growth
    }

    /// Returns the number of passes for each one that adds something.
    fn every(&self) -> f64 {
        let of = |one: &Grown<K>| match one.course {
            Course::Sparse { every, .. } => every,
            _ => 1.0,
        };
        self.grown.first().map_or(1.0, of)
    }

    /// True if the passes that add something come regularly, or else all add the same.
    fn is_regular(&self) -> bool {
        self.grown.first().is_some_and(|one| match one.course {
            Course::Even { is_regular, .. } | Course::Sparse { is_regular, .. } => is_regular,
            Course::Flat | Course::Uneven => false,
        })
    }

    /// Returns three measures: many even passes, passes that add something, evenness.
    fn strength(&self) -> (bool, usize, bool) {
        let telling = self.grown.first().map_or((0, 0), |one| match one.course {
            Course::Even { rises, .. } | Course::Sparse { rises, .. } => rises,
            Course::Flat | Course::Uneven => (0, 0),
        });
        (self.is_even && telling.1 >= STRONG, telling.0, self.is_even)
    }

    /// Bytes that its groups added from the first pass to the last.
    pub fn bytes(&self) -> u64 {
        self.grown
            .iter()
            .fold(0, |sum, one| sum.saturating_add(one.bytes))
    }
}

/// True if a block that is made anew adds the same each time, without the whole pass being larger.
fn is_larger_each_time(bytes: &[u64], volumes: &[u64], rate: f64) -> bool {
    let from = steady(bytes.len().saturating_sub(1));
    let changes = |values: &[u64]| -> Vec<i64> {
        let pairs = values.windows(2).skip(from);
        pairs
            .filter_map(|pair| Some((*pair.last()? as i64).saturating_sub(*pair.first()? as i64)))
            .collect()
    };
    let grown = changes(bytes);
    let usual = median(&grown);
    let same = grown
        .iter()
        .filter(|one| one.abs_diff(usual).saturating_mul(50) <= usual.unsigned_abs());
    let is_rate = (usual as f64 - rate).abs() <= NEAR * rate;
    if !is_rate || (same.count() as f64) < SAME * grown.len() as f64 {
        return false;
    }
    let made = changes(volumes);
    let half = made.len().div_ceil(2);
    let mean =
        |part: &[i64]| part.iter().map(|one| *one as f64).sum::<f64>() / part.len().max(1) as f64;
    let (early, late) = made.split_at(half.min(made.len()));
    let more = (mean(late) - mean(early)) / half.max(1) as f64;
    late.is_empty() || more <= TEMPORARY * rate
}

/// Chooses the loop to which growth belongs: the innermost with even passes, unless an outer one
/// explains more. `loops` begins with the outermost; `end` is the last allocation.
pub fn choose<K: Copy + Ord>(loops: &[Loop], levels: Vec<Level<K>>, end: u64) -> Option<Level<K>> {
    let has_ended = |level: &Level<K>| {
        let of = loops
            .get(level.number)
            .map(|one| &one.starts[..])
            .unwrap_or_default();
        let lengths = of.windows(2).filter_map(|pair| {
            Some(pair.last()?.ticket.saturating_sub(pair.first()?.ticket) as i64)
        });
        let usual = median(&lengths.collect::<Vec<_>>()) as f64;
        // Memory that is made anew each time is not loading.
        let is_anew = |one: &Grown<K>| one.kind == Kind::Anew;
        let part = match level.growth.grown.first().is_some_and(is_anew) {
            false if of.len() as u64 > FEW => ENDED,
            _ => ENDED_OF_FEW,
        };
        of.last()
            .is_none_or(|last| last.ticket as f64 + usual < part * end as f64)
    };
    let mut growing: Vec<Level<K>> = levels
        .into_iter()
        .filter(|level| !level.growth.grown.is_empty() && !has_ended(level))
        .collect();
    // Many even passes decide; among few, the level at which most of them tell. Additions of
    // several inner passes belong to the inner loop, unless only those of the outer one are the
    // same each time.
    let strongest = growing.iter().max_by_key(|level| level.growth.strength())?;
    let best = strongest.growth.strength();
    let is_same = strongest.growth.is_even && strongest.growth.is_regular();
    let is_finer = |level: &Level<K>| {
        let of = &level.growth;
        of.strength().1 as f64 >= FINER * best.1 as f64
            && (of.is_even || of.is_regular() || !is_same)
    };
    if growing.iter().any(is_finer) {
        growing.retain(is_finer);
    } else {
        growing.retain(|level| {
            let (is_strong, telling, _) = level.growth.strength();
            is_strong == best.0 && (is_strong || telling * 2 >= best.1)
        });
        if growing.iter().any(|level| level.growth.is_even) {
            growing.retain(|level| level.growth.is_even);
        }
    }
    let most = growing.iter().map(|level| level.growth.bytes()).max()?;
    let explains = |level: &Level<K>| level.growth.bytes() as f64 >= EXPLAINS * most as f64;
    growing.retain(explains);
    let rarest = |level: &Level<K>| level.growth.every();
    let least = growing.iter().map(rarest).fold(f64::INFINITY, f64::min);
    growing
        .into_iter()
        .rev()
        .find(|level| rarest(level) <= SAME_EVERY * least)
}
