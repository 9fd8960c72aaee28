//! Whether memory grows with each iteration, by how much, which stacks keep it, and when it will be too much.

use serde::Serialize;

use crate::iterations::{Iterations, Kept, Steady};

/// The level of live memory by iteration.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Growth {
    /// Iterations that were found, the first ones included.
    pub iterations: usize,
    /// The iteration from which on it is steady, from 0: those before it are the warm-up.
    pub steady_from: usize,
    /// When that began, ns since the start.
    pub steady_ns: u64,
    /// Bytes live at the beginning of each iteration.
    pub levels: Vec<u64>,
    /// What each iteration leaves behind, bytes; where none does, what the level rises by, which may be negative.
    pub per_iteration: f64,
    /// Mean duration of those after the warm-up, ns.
    pub iteration_ns: f64,
    /// Whether that is growth: each iteration, or each n-th one, leaves blocks behind, to the end; of iterations that
    /// are sure.
    pub grows: bool,
    /// Why it is not called growth although what is live rises: it is not sure that these are iterations.
    pub unsure: Option<String>,
    /// Whether what is live rises although no iteration leaves blocks behind: larger ones take the place of smaller ones.
    pub rises: bool,
    /// The stacks that keep the added bytes, those with most first.
    pub keepers: Vec<Keeper>,
}

/// Blocks of one stack, or of one size without a stack, that iterations left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Keeper {
    /// Id of the stack.
    pub stack: u32,
    /// The size of each, bytes, where no stack was recorded.
    pub size: Option<u64>,
    /// Blocks that were kept.
    pub blocks: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes for each iteration.
    pub per_iteration: f64,
    /// Every how many iterations.
    pub every: f64,
    /// Their part in what was kept, 0 to 1.
    pub share: f64,
}

impl Growth {
    /// By what was kept.
    pub fn new(iterations: &Iterations, kept: &Kept) -> Growth {
        let steady = Steady::of(&kept.levels);
        let left = kept
            .groups
            .iter()
            .filter_map(|group| Some((group, group.left?)));
        let rate: f64 = left.clone().map(|(_, left)| left.per_iteration).sum();
        let keepers: Vec<Keeper> = left
            .map(|(group, left)| Keeper {
                stack: group.held.stack,
                size: group.size,
                blocks: group.held.blocks,
                bytes: group.held.bytes,
                per_iteration: left.per_iteration,
                every: left.every,
                share: left.per_iteration / rate,
            })
            .collect();
        let certainty = &iterations.certainty;
        let is_left = !keepers.is_empty();
        let start = |index: usize| iterations.starts.get(index).map_or(0, |start| start.ns);
        let last = kept.levels.len().saturating_sub(1);
        let passed = start(last).saturating_sub(start(steady.from)) as f64;
        Growth {
            iterations: iterations.count(),
            steady_from: steady.from,
            steady_ns: start(steady.from),
            grows: is_left && certainty.sure,
            unsure: ((is_left || steady.rises) && !certainty.sure).then(|| certainty.why.clone()),
            rises: steady.rises && !is_left,
            per_iteration: if is_left { rate } else { steady.per_iteration },
            iteration_ns: passed / last.saturating_sub(steady.from).max(1) as f64,
            keepers,
            levels: kept.levels.clone(),
        }
    }
}

#[cfg(test)]
mod generated;
#[cfg(test)]
mod tests;
