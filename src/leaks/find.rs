//! Live memory at the end, or just before the last iteration: by stack, with its age and its part in
//! growth.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::growth::Growth;
use crate::ledger::{Block, Held};
use crate::loops::{Followed, Judgement};
use crate::recording::Recording;

/// Blocks of one stack, or of one size without a stack, that are still live.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeftBlocks {
    /// The blocks.
    #[serde(flatten)]
    pub held: Held,
    /// The size of each, bytes, where no stack was recorded.
    pub size: Option<u64>,
    /// In how many iterations they were allocated.
    pub iterations: usize,
    /// Bytes for each pass of the loop that memory grows with, if it grows by these.
    pub per_iteration: Option<f64>,
}

/// What is still live.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Leaks {
    /// When it was looked at, ns since the start.
    pub ns: u64,
    /// Whether that is just before the last iteration: programs may free what they leaked at exit.
    pub before_last_iteration: bool,
    /// Iterations before the last one.
    pub iterations: usize,
    /// Bytes that are live.
    pub bytes: u64,
    /// Bytes of the stacks that memory grows by.
    pub leaked: u64,
    /// Rows by stack, or by size without one: growing ones first, then those with most bytes.
    pub left: Vec<LeftBlocks>,
    /// The certainty of growth or of its absence; `None` without iterations.
    pub judgement: Option<Judgement>,
}

impl Leaks {
    /// Sums up followed blocks: live ones at the last iteration, or at the end without iterations.
    pub fn of(recording: &dyn Recording, followed: &Followed) -> Leaks {
        let growth = Growth::of(followed);
        let keepers = growth.as_ref().map_or(&[][..], |growth| &growth.keepers);
        let number = |stack: u32| match stack {
            0 => 0,
            stack => recording.way(stack).number(),
        };
        let rates: FxHashMap<(u64, u64), f64> = (keepers.iter())
            .map(|keeper| {
                (
                    (number(keeper.stack), keeper.size.unwrap_or(0)),
                    keeper.per_iteration,
                )
            })
            .collect();
        let iterations = followed.iterations.as_ref();
        let mut numbers = FxHashMap::<u32, u64>::default();
        let mut of = FxHashMap::<(u64, u64, bool), Vec<&Block>>::default();
        for block in &followed.live {
            let number = *numbers
                .entry(block.stack)
                .or_insert_with(|| number(block.stack));
            let is_earlier = number == 0 && block.earlier;
            let size = if number == 0 && !is_earlier {
                block.size
            } else {
                0
            };
            of.entry((number, size, is_earlier))
                .or_default()
                .push(block);
        }
        let left = of
            .into_iter()
            .filter_map(|((number, size, earlier), blocks)| {
                let first = blocks.first()?;
                let mut born: Vec<usize> = blocks
                    .iter()
                    .filter_map(|block| iterations?.of(block.ticket).filter(|_| block.ticket > 0))
                    .collect();
                born.dedup();
                Some(LeftBlocks {
                    held: Held {
                        stack: first.stack,
                        blocks: blocks.len() as u64,
                        bytes: blocks
                            .iter()
                            .fold(0, |sum, block| block.size.saturating_add(sum)),
                        oldest_ns: first.ns,
                        newest_ns: blocks.last().map_or(first.ns, |last| last.ns),
                        earlier,
                    },
                    size: Some(size).filter(|size| *size > 0),
                    iterations: born.len(),
                    per_iteration: rates.get(&(number, size)).copied().filter(|_| !earlier),
                })
            });
        let mut left: Vec<LeftBlocks> = left.collect();
        left.sort_by_key(|left| {
            let held = &left.held;
            (
                left.per_iteration.is_none(),
                Reverse(held.bytes),
                held.stack,
                left.size,
            )
        });
        let sum = |only: bool| {
            let of = left
                .iter()
                .filter(|left| !only || left.per_iteration.is_some());
            of.fold(0_u64, |sum, left| sum.saturating_add(left.held.bytes))
        };
        Leaks {
            ns: followed.last_ns,
            before_last_iteration: iterations.is_some_and(|all| all.starts.len() > 1),
            iterations: iterations.map_or(0, |all| all.count().saturating_sub(1)),
            bytes: sum(false),
            leaked: sum(true),
            left,
            judgement: growth.map(|growth| growth.judgement),
        }
    }
}

#[cfg(test)]
mod tests;
