//! What is still live at the end, or just before the last iteration: by stack, with how old it is.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::iterations::Iterations;
use crate::ledger::{Block, Focus, Held, LiveAt, by_stack, walk};
use crate::recording::Recording;

/// A stack that leaves blocks behind in so many of the iterations leaks: parts of them.
const OFTEN: f64 = 0.5;
/// Blocks of the last iterations may be in use still.
const RECENT: usize = 2;

/// Blocks of one stack that are still live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Left {
    /// The blocks.
    #[serde(flatten)]
    pub held: Held,
    /// In how many iterations they were allocated, of those before the last two.
    pub iterations: usize,
    /// Whether each iteration, or every few of them, leaves some behind.
    pub leaks: bool,
}

/// What is still live.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leaks {
    /// When it was looked at, ns since the start.
    pub ns: u64,
    /// Whether that is just before the last iteration: programs take down at last what they leaked.
    pub before_last_iteration: bool,
    /// Iterations in which what was left behind is looked for.
    pub iterations: usize,
    /// Bytes that are live.
    pub bytes: u64,
    /// Bytes of the stacks that leak.
    pub leaked: u64,
    /// By stack: those that leak first, then those with most bytes.
    pub left: Vec<Left>,
}

impl Leaks {
    /// Looks at what is left, with iterations if there are any.
    pub fn of(recording: &dyn Recording, focus: Focus, iterations: Option<&Iterations>) -> Leaks {
        let last = iterations.and_then(|iterations| iterations.starts.iter().rev().nth(1));
        let mut live = LiveAt::new(last.map_or(u64::MAX, |start| start.ticket));
        walk(recording, focus, &mut [&mut live]);
        let end = || recording.events().last().map_or(0, |record| record.ns);
        let ns = last.map_or_else(end, |start| start.ns);
        Leaks::new(recording, iterations, ns, &live.into_blocks())
    }

    /// By what was live at the beginning of the last iteration, or at the end where there are none, and when
    /// that was, ns since the start.
    pub fn new(
        recording: &dyn Recording,
        iterations: Option<&Iterations>,
        ns: u64,
        live: &[Block],
    ) -> Leaks {
        let looked = iterations.map_or(0, |iterations| {
            iterations.count().saturating_sub(1 + RECENT)
        });
        // In which iterations each stack left something.
        let mut of = FxHashMap::<u64, Vec<usize>>::default();
        for block in live {
            let iteration = iterations.and_then(|iterations| iterations.of(block.ticket));
            if let Some(iteration) = iteration.filter(|iteration| *iteration < looked) {
                let all = of.entry(recording.frames(block.stack)).or_default();
                if all.last() != Some(&iteration) {
                    all.push(iteration);
                }
            }
        }
        let mut left: Vec<Left> = by_stack(recording, live)
            .into_iter()
            .map(|held| {
                let left = of.get(&recording.frames(held.stack));
                let iterations = left.map_or(0, Vec::len);
                Left {
                    held,
                    iterations,
                    leaks: is_leak(left.map_or(&[], Vec::as_slice), looked),
                }
            })
            .collect();
        left.sort_by_key(|left| !left.leaks);
        let sum = |only: bool| {
            let of = left.iter().filter(|left| !only || left.leaks);
            of.fold(0_u64, |sum, left| sum.saturating_add(left.held.bytes))
        };
        Leaks {
            ns,
            before_last_iteration: iterations.is_some_and(|all| all.starts.len() > 1),
            iterations: looked,
            bytes: sum(false),
            leaked: sum(true),
            left,
        }
    }
}

/// Whether these iterations are most of those looked at, or every few of them up to the last.
fn is_leak(left: &[usize], looked: usize) -> bool {
    if left.len() < 3 || looked < 3 {
        return false;
    }
    let often = left.len() as f64 >= OFTEN * looked as f64;
    let (first, last) = (
        left.first().copied().unwrap_or(0),
        left.last().copied().unwrap_or(0),
    );
    let apart = (last - first) as f64 / (left.len() - 1) as f64;
    let goes_on = (looked - last) as f64 <= 2.0 * apart + 1.0;
    let began_early = (first as f64) <= 0.5 * looked as f64;
    (often || began_early && left.len() >= 4) && goes_on
}

#[cfg(test)]
mod tests;
