//! Offsets for blocks whose lifetimes are known, so that the highest end is as low as can be found.
//!
//! This is the problem of dynamic storage allocation, which is NP-hard. What is done, in this order:
//!
//! 1. [`parts`]: blocks that live as long as everything around them lie at the bottom, and times between which nothing
//!    lives on are problems of their own. Neither costs anything.
//! 2. [`greedy`]: first fit and best fit in several orders, and stacking by skyline where there are too many pairs.
//! 3. [`descend`]: a limit between the best placement and the largest live sum is tried, by an exact [`search`] where the
//!    part is small, else by [`eject`], which moves a few blocks at a time.
//!
//! Effort is counted in steps and not by the clock: equal blocks have equal offsets on every machine.

mod budget;
mod chance;
mod descend;
mod eject;
mod greedy;
mod neighbours;
mod parts;
mod search;
mod sections;
mod skyline;
#[cfg(test)]
mod tests;

use super::lives::Span;

pub use budget::{Budget, Effort};

/// From which moment to before which one. Empty where both are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    pub from: usize,
    pub to: usize,
}

/// A block, or a block and its successor in the next period, which share an offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its size in bytes.
    pub bytes: u64,
    /// The lifetimes, the earlier one first; the second may be empty.
    pub lives: [Life; 2],
}

impl Block {
    /// One that lives once.
    pub fn one(span: Span) -> Block {
        let life = Life {
            from: span.from,
            to: span.to,
        };
        Block {
            bytes: span.bytes,
            lives: [life, Life::default()],
        }
    }

    /// And a block of the same size that comes after it.
    pub fn and(&mut self, span: Span) {
        self.lives[1] = Life {
            from: span.from,
            to: span.to,
        };
    }

    /// Its lifetimes that are not empty.
    fn lives(&self) -> impl Iterator<Item = Life> {
        self.lives.into_iter().filter(|life| life.from < life.to)
    }

    /// Whether both are live at some moment.
    #[cfg(test)]
    fn meets(&self, other: &Block) -> bool {
        self.lives()
            .any(|a| other.lives().any(|b| a.from < b.to && b.from < a.to))
    }
}

/// Offsets, and how good they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Of each block, in bytes.
    pub offsets: Vec<u64>,
    /// The highest end, in bytes.
    pub bytes: u64,
    /// No placement needs fewer bytes: the largest live sum, or more where a search has shown it.
    pub least: u64,
}

/// Places blocks with the steps that are left.
pub fn place(blocks: &[Block], budget: &mut Budget<'_>) -> Placement {
    let mut offsets = vec![0; blocks.len()];
    let (parts, mut least) = parts::of(blocks, &mut offsets);
    let mut problems: Vec<descend::Problem> =
        parts.into_iter().map(descend::Problem::new).collect();
    // Below this no part can end: the parts that need most say so, and are done first.
    for problem in &problems {
        least = least.max(problem.base() + problem.least());
    }
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.base() + problem.least()));
    let mut bytes = least;
    let mut proven = least;
    for problem in &mut problems {
        problem.begin(bytes, budget);
    }
    // Those that end highest now get the steps that are left.
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.end()));
    for problem in &mut problems {
        problem.descend(bytes, budget);
        bytes = bytes.max(problem.end());
        proven = proven.max(problem.base() + problem.least());
    }
    for problem in &problems {
        problem.write(&mut offsets);
    }
    Placement {
        offsets,
        bytes,
        least: proven,
    }
}
