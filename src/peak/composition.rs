//! Live memory at the peak of a training by use: parameters, gradients, optimizer state,
//! activations, temporaries.
//!
//! Blocks are classified by the times of their allocation and free. NVTX ranges, or else the
//! allocating functions, distinguish forward, backward and the optimizer.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::ledger::Block;
use crate::loops::{Iterations, Journal, Start, What};
use crate::output::owned::Workspaces;
use crate::recording::{Names, Recording};
use gpushim_trace::Kept;

mod phase;
#[cfg(test)]
mod tests;

use phase::{Intervals, Phase};

/// What a block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Category {
    /// Parameters: allocated before the first iteration, and never freed.
    Parameters,
    /// Gradients: allocated by backward, and freed after it.
    Gradients,
    /// Optimizer state: allocated by the optimizer, and never freed.
    OptimizerState,
    /// Activations: allocated before backward, inputs included, and live until backward.
    Activations,
    /// Temporaries: freed before the end of the phase that allocated them.
    Temporary,
    /// Held by another name of the program: inputs, caches, lists.
    Named,
    /// Workspaces of libraries.
    Workspaces,
    /// Unknown.
    Unknown,
}

impl Category {
    /// All categories, in the order of the output.
    pub const ALL: [Category; 8] = [
        Category::Parameters,
        Category::Gradients,
        Category::OptimizerState,
        Category::Activations,
        Category::Temporary,
        Category::Named,
        Category::Workspaces,
        Category::Unknown,
    ];

    /// Returns the category of a block by its life and by its owner's way to keep it.
    fn of_owner(self, kept: Option<Kept>) -> Category {
        match kept {
            Some(Kept::Parameter | Kept::Buffer) => Category::Parameters,
            Some(Kept::Gradient) => Category::Gradients,
            Some(Kept::OptimizerState) => Category::OptimizerState,
            _ if matches!(self, Category::Activations | Category::Temporary) => self,
            Some(Kept::Graph) => Category::Activations,
            Some(Kept::Named | Kept::Announced) => Category::Named,
            Some(Kept::Unreachable | Kept::Native | Kept::Other) => Category::Unknown,
            None => self,
        }
    }

    /// Returns true if the category of a block rests on its life alone, and not on its owner.
    fn rests_on_life(self, kept: Option<Kept>) -> bool {
        match self {
            Category::Activations => kept != Some(Kept::Graph),
            Category::Temporary => true,
            Category::Named | Category::Workspaces | Category::Unknown => false,
            Category::Parameters | Category::Gradients | Category::OptimizerState => kept.is_none(),
        }
    }

    /// Returns the name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Category::Parameters => "parameters",
            Category::Gradients => "gradients",
            Category::OptimizerState => "optimizer state",
            Category::Activations => "activations",
            Category::Temporary => "temporary",
            Category::Named => "held by other names",
            Category::Workspaces => "workspaces",
            Category::Unknown => "unknown",
        }
    }
}

/// The live bytes of one category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Part {
    /// For what.
    pub category: Category,
    /// Bytes.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// Live memory, summed up by its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composition {
    /// The categories that occur, in their order.
    pub parts: Vec<Part>,
    /// True if it rests on certain iterations, or on the phases of a single pass.
    pub sure: bool,
}

/// Judges the blocks that were live at the moment of a journal, by their owners if recorded, else
/// by the times of allocation and free. Returns `None` if no block can be judged. A run without
/// certain iterations may be a single pass.
pub fn composition(
    recording: &dyn Recording,
    names: &mut dyn Names,
    iterations: Option<&Iterations>,
    journal: &Journal,
    live: &[Block],
) -> Option<Composition> {
    let by_lives = by_lives(recording, names, iterations, journal, live);
    let (mut judged, mut sure) = by_lives.unwrap_or_else(|| {
        let unknown = live.iter().map(|block| (*block, Category::Unknown));
        (unknown.collect(), false)
    });
    let owners = recording.owners();
    if !owners.is_empty() {
        let mut workspaces = Workspaces::of(recording);
        let mut by_life = false;
        for (block, category) in &mut judged {
            let owner = owners.of_block(block.class.layer(), block.address, block.ticket);
            let kept = owner.map(|owner| owner.kept);
            *category = category.of_owner(kept);
            if matches!(category, Category::Unknown | Category::Activations)
                && workspaces.has(block)
            {
                *category = Category::Workspaces;
            }
            by_life |= category.rests_on_life(kept);
        }
        // The judgement of the other blocks by their lives stays uncertain, even with names.
        sure |= !by_life;
    }
    let part = |category| {
        let its = judged.iter().filter(|(_, of)| *of == category);
        its.fold(
            Part {
                category,
                bytes: 0,
                blocks: 0,
            },
            |part, (block, _)| Part {
                bytes: part.bytes.saturating_add(block.size),
                blocks: part.blocks + 1,
                ..part
            },
        )
    };
    let parts = Category::ALL.map(part).into_iter();
    let parts: Vec<Part> = parts.filter(|part| part.blocks > 0).collect();
    let is_told = parts.iter().any(|part| part.category != Category::Unknown);
    is_told.then_some(Composition { parts, sure })
}

/// Judges blocks by the times of their allocation and free; the flag is true if the judgement is
/// certain.
fn by_lives(
    recording: &dyn Recording,
    names: &mut dyn Names,
    iterations: Option<&Iterations>,
    journal: &Journal,
    live: &[Block],
) -> Option<(Vec<(Block, Category)>, bool)> {
    let entries = journal.entries()?;
    let mut phases = phase::Phases::new(recording, names);
    let intervals = Intervals::of(entries, &mut phases);
    let is_sure = iterations.is_some_and(|all| all.certainty.sure);
    // Without certain iterations, the phases of the whole recording show the use of blocks.
    let whole = !is_sure && journal.is_all() && !intervals.all.is_empty();
    let starts = match whole {
        true => Vec::new(),
        false => iterations?.starts.clone(),
    };
    // The free of each block that was live at the moment.
    let freed: FxHashMap<u64, u64> = entries
        .iter()
        .rev()
        .filter(|entry| entry.ticket >= journal.moment())
        .filter_map(|entry| match entry.what {
            What::Freed(address) => Some((address, entry.ticket)),
            _ => None,
        })
        .collect();
    let mut judge = Judge {
        is_whole: !recording.coverage().wrapped,
        starts,
        sees_end: journal.is_whole(),
        journal,
        intervals: &intervals,
        phases,
    };
    let mut judged: Vec<(Block, Option<u64>, Category)> = live
        .iter()
        .map(|block| {
            let freed = freed.get(&block.address).copied();
            let category = match whole {
                true => judge.by_phases(block, freed),
                false => judge.category(block, freed),
            };
            (*block, freed, category)
        })
        .collect();
    if !intervals.by_ranges {
        match_gradients(&mut judged);
    }
    let sure = is_sure || (whole && intervals.is_single_pass());
    let judged = judged.into_iter();
    Some((
        judged
            .map(|(block, _, category)| (block, category))
            .collect(),
        sure,
    ))
}

struct Judge<'a, 'b> {
    /// True if all allocations can be read.
    is_whole: bool,
    /// Beginnings of the iterations, and the end of the last one.
    starts: Vec<Start>,
    /// True if blocks that are live at the end of the journal live through a whole iteration.
    sees_end: bool,
    journal: &'a Journal,
    intervals: &'a Intervals,
    phases: phase::Phases<'b>,
}

impl Judge<'_, '_> {
    /// Returns the phase in which a block was made.
    fn phase(&mut self, block: &Block) -> Option<Phase> {
        let by_range = self.phases.of_ranges(block.stack);
        let by_stack = by_range.or_else(|| self.phases.of_frames(block.stack));
        let interval = || self.intervals.at(block.ticket);
        by_stack.or_else(|| (!block.earlier).then(interval)?.map(|one| one.phase))
    }

    /// Judges a block by the phases that made and freed it, in a recording without sure iterations.
    fn by_phases(&mut self, block: &Block, freed: Option<u64>) -> Category {
        let intervals = self.intervals;
        let within = |ticket: u64| intervals.at(ticket).map(|interval| interval.phase);
        let backward = intervals.next(Phase::Backward, block.ticket);
        match (self.phase(block), freed) {
            (Some(Phase::Optimizer), None) => Category::OptimizerState,
            (Some(Phase::Optimizer), Some(_)) => Category::Temporary,
            (Some(Phase::Backward), _) if block.earlier => Category::Gradients,
            (Some(Phase::Backward), freed) => self.of_backward(block, freed),
            // Memory that was there before and stays.
            (_, None) if block.earlier && self.is_whole => Category::Parameters,
            (_, Some(freed)) if block.earlier && within(freed) == Some(Phase::Optimizer) => {
                Category::Gradients
            }
            (_, None) if !intervals.has_begun(Phase::Forward, block.ticket) && !block.earlier => {
                Category::Parameters
            }
            // Memory that the pass keeps for a backward pass to come.
            (Some(Phase::Forward), None) if backward.is_none() => Category::Activations,
            (_, None) => Category::Unknown,
            (_, Some(freed)) => match backward {
                Some(backward) if freed >= backward.from => Category::Activations,
                _ if block.earlier => Category::Unknown,
                _ => Category::Temporary,
            },
        }
    }

    fn category(&mut self, block: &Block, freed: Option<u64>) -> Category {
        let phase = self.phases.of_ranges(block.stack);
        let phase = phase.or_else(|| match self.intervals.at(block.ticket) {
            Some(interval) if self.intervals.by_ranges => Some(interval.phase),
            _ => None,
        });
        let phase = phase.or_else(|| self.phases.of_frames(block.stack));
        if self.stays(block, freed) {
            return match phase {
                Some(Phase::Optimizer) => Category::OptimizerState,
                Some(Phase::Backward) => Category::Gradients,
                // The phases before older blocks are unknown.
                _ if (self.is_whole || block.ticket > 0) && self.is_before_all(block) => {
                    Category::Parameters
                }
                _ => Category::Unknown,
            };
        }
        match phase {
            _ if self.intervals.all.is_empty() => Category::Unknown,
            Some(Phase::Optimizer) => Category::Temporary,
            Some(Phase::Backward) => self.of_backward(block, freed),
            Some(Phase::Forward) | None => {
                let backward = self.intervals.next(Phase::Backward, block.ticket);
                match (backward, freed) {
                    (Some(backward), Some(freed)) if freed < backward.from => Category::Temporary,
                    (Some(_), Some(_)) => Category::Activations,
                    (None, Some(_)) => Category::Temporary,
                    (_, None) => Category::Unknown,
                }
            }
        }
    }

    /// Judges a block that backward made.
    fn of_backward(&self, block: &Block, freed: Option<u64>) -> Category {
        let end = self.intervals.at(block.ticket).map(|interval| interval.to);
        match (end, freed) {
            (Some(end), Some(freed)) if freed <= end => Category::Temporary,
            _ => Category::Gradients,
        }
    }

    /// Returns true if a block lives through a whole iteration after the one that made it.
    fn stays(&self, block: &Block, freed: Option<u64>) -> bool {
        let begun = |ticket: u64| self.starts.partition_point(|start| start.ticket <= ticket);
        let came = begun(block.ticket);
        match freed {
            Some(freed) => begun(freed) >= came + 2,
            None => self.sees_end || begun(self.journal.moment()) >= came + 2,
        }
    }

    fn is_before_all(&self, block: &Block) -> bool {
        let first = self.starts.first();
        first.is_some_and(|first| block.ticket < first.ticket)
    }
}

/// Finds gradients if only allocations show the phases, so that the end of backward is unknown.
/// Some blocks made in backward seem to outlive it. The longest-lived ones with the size of a
/// parameter each are gradients.
fn match_gradients(judged: &mut [(Block, Option<u64>, Category)]) {
    let mut sizes = FxHashMap::<u64, u64>::default();
    for (block, _, category) in judged.iter() {
        if *category == Category::Parameters {
            *sizes.entry(block.size).or_default() += 1;
        }
    }
    let mut gradients: Vec<_> = judged
        .iter_mut()
        .filter(|(.., category)| *category == Category::Gradients)
        .collect();
    gradients.sort_by_key(|(block, freed, _)| {
        let life = freed.map_or(u64::MAX, |freed| freed.saturating_sub(block.ticket));
        std::cmp::Reverse(life)
    });
    for (block, freed, category) in gradients {
        match sizes.get_mut(&block.size) {
            Some(left) if *left > 0 => *left -= 1,
            _ if freed.is_some() => *category = Category::Temporary,
            _ => *category = Category::Unknown,
        }
    }
}

impl Part {
    /// Returns its share of the whole, 0 to 1.
    pub fn share(&self, whole: u64) -> f64 {
        self.bytes as f64 / whole.max(1) as f64
    }
}
