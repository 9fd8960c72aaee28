//! Growth of memory with the passes of a loop: by how much, and which stacks keep it.

use gpushim_analysis::repeats::{Course, Kind as GrownKind, course};
use serde::Serialize;

use crate::loops::{Certainty, Followed, Iterations, Judgement, Told};

/// Growth of memory with the passes of a loop.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Growth {
    /// Number of passes that began.
    pub iterations: usize,
    /// The pass from which on it is steady, from 0: those before it are the warm-up.
    pub steady_from: usize,
    /// When that began, ns since the start.
    pub steady_ns: u64,
    /// Passes that tell whether it grows: all, or those that add something where few do.
    pub telling: u64,
    /// Bytes live at the beginning of each pass.
    pub levels: Vec<u64>,
    /// Bytes that each pass adds; 0 where none is known to.
    pub per_iteration: f64,
    /// Mean duration of those after the warm-up, ns.
    pub iteration_ns: f64,
    /// True if it surely grows.
    pub grows: bool,
    /// True if live memory rises, and no stack is known to keep it.
    pub rises: bool,
    /// The certainty of growth, or of its absence.
    pub judgement: Judgement,
    /// The stacks that keep the added bytes, those with most first.
    pub keepers: Vec<Keeper>,
}

/// Blocks of the same calls, or of one size without a stack, that passes add.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Keeper {
    /// Id of the stack.
    pub stack: u32,
    /// The size of each, bytes, where no stack was recorded.
    pub size: Option<u64>,
    /// Number of blocks that were added.
    pub blocks: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes that each pass adds.
    pub per_iteration: f64,
    /// Distance in passes between additions.
    pub every: f64,
    /// Passes that added some, and passes in all.
    pub rises: (usize, usize),
    /// True if a block is made anew, and larger, each time.
    pub is_anew: bool,
    /// Their part in what was added, 0 to 1.
    pub share: f64,
}

impl Growth {
    /// Judges followed blocks; `None` without iterations.
    pub fn of(followed: &Followed) -> Option<Growth> {
        let (iterations, found) = match &followed.growth {
            Some((iterations, growth)) => (iterations, Some(growth)),
            None => (followed.iterations.as_ref()?, None),
        };
        let count = iterations.count();
        let grown = found.map_or(&[][..], |growth| &growth.grown);
        let rate: f64 = grown.iter().map(|one| one.course.rate()).sum();
        let keepers = grown.iter().map(|one| {
            let (every, rises) = match one.course {
                Course::Even { rises, .. } => (1.0, rises),
                Course::Sparse { rises, every, .. } => (every, rises),
                Course::Flat | Course::Uneven => (1.0, (0, 0)),
            };
            let per_iteration = one.course.rate();
            Keeper {
                stack: followed.stacks.get(&one.group).copied().unwrap_or(0),
                size: Some(one.group.1).filter(|_| one.group.0 == 0),
                blocks: one.blocks,
                bytes: one.bytes,
                per_iteration,
                every,
                rises,
                is_anew: one.kind == GrownKind::Anew,
                share: per_iteration / rate,
            }
        });
        let keepers: Vec<Keeper> = keepers.collect();
        let levels = followed.levels.clone();
        let uneven = followed.steady.as_ref().map_or(0, |growth| growth.uneven);
        let of_all = course(&levels);
        let rises =
            keepers.is_empty() && (of_all.grows() || of_all == Course::Uneven && uneven > 0);
        let telling = match keepers.first() {
            Some(first) if first.every > 1.0 => first.rises.0 as u64,
            _ => count as u64,
        };
        let judgement = judge(iterations, (&keepers, telling), rises);
        let from = (count / 3).min(2);
        let start = |index: usize| iterations.starts.get(index).map_or(0, |start| start.ns);
        let last = count.saturating_sub(1);
        let passed = start(last).saturating_sub(start(from)) as f64;
        Some(Growth {
            iterations: count,
            telling,
            steady_from: from,
            steady_ns: start(from),
            per_iteration: if keepers.is_empty() { 0.0 } else { rate },
            iteration_ns: passed / last.saturating_sub(from).max(1) as f64,
            grows: !keepers.is_empty() && judgement.told == Told::Sure,
            rises,
            judgement,
            keepers,
            levels,
        })
    }

    /// Returns true if it grows, surely or likely.
    pub fn is_found(&self) -> bool {
        !self.keepers.is_empty()
    }
}

fn judge(iterations: &Iterations, (keepers, telling): (&[Keeper], u64), rises: bool) -> Judgement {
    let passes = iterations.count() as u64;
    let certainty: &Certainty = &iterations.certainty;
    if let Some(first) = keepers.first() {
        let (some, all) = first.rises;
        let what = if first.is_anew {
            "made it larger"
        } else {
            "left some"
        };
        return Judgement::found(telling, certainty, format!("{some} of {all} passes {what}"));
    }
    if rises {
        return Judgement::not_seen(format!(
            "live memory rises in {passes} passes, and no stack keeps about the same in each"
        ));
    }
    Judgement::absent(passes, certainty)
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
