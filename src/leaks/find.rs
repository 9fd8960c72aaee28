//! What is still live at the end, or just before the last iteration: by stack, with how old it is.

use serde::Serialize;

use crate::iterations::{Follow, Iterations, Kept};
use crate::ledger::{Focus, Held};
use crate::recording::{Recording, read};

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
    /// Bytes for each iteration, if each, or each n-th one, leaves some behind, to the end.
    pub per_iteration: Option<f64>,
    /// Whether that is a leak: if the iterations are sure.
    pub leaks: bool,
}

/// What is still live.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Leaks {
    /// When it was looked at, ns since the start.
    pub ns: u64,
    /// Whether that is just before the last iteration: programs may free what they leaked at exit.
    pub before_last_iteration: bool,
    /// Iterations before the last one, in which what was left behind is looked for.
    pub iterations: usize,
    /// Bytes that are live.
    pub bytes: u64,
    /// Bytes of the stacks that leak.
    pub leaked: u64,
    /// By stack, or by size without one: those that leak first, then those with most bytes.
    pub left: Vec<LeftBlocks>,
    /// Why none is called a leak although blocks are left behind: it is not sure that these are iterations.
    pub unsure: Option<String>,
}

impl Leaks {
    /// What is live at the end, whatever repeats.
    pub fn at_end(recording: &dyn Recording, focus: Focus) -> Leaks {
        let mut follow = Follow::new(recording, focus, None, &[], None);
        read(recording, &mut [&mut follow]);
        let followed = follow.finish();
        Leaks::new(None, followed.last_ns, &followed.kept)
    }

    /// By what was kept when the last iteration began, or at the end where there are none, and when that was, ns since
    /// the start.
    pub fn new(iterations: Option<&Iterations>, ns: u64, kept: &Kept) -> Leaks {
        let unsure = iterations.filter(|iterations| !iterations.certainty.sure);
        let unsure = unsure.map(|iterations| iterations.certainty.why.clone());
        let left: Vec<LeftBlocks> = (kept.groups.iter())
            .map(|group| LeftBlocks {
                held: group.held,
                size: group.size,
                iterations: group.iterations,
                per_iteration: group.left.map(|left| left.per_iteration),
                leaks: unsure.is_none() && group.left.is_some(),
            })
            .collect();
        let sum = |only: bool| {
            let of = left.iter().filter(|left| !only || left.leaks);
            of.fold(0_u64, |sum, left| sum.saturating_add(left.held.bytes))
        };
        Leaks {
            ns,
            before_last_iteration: iterations.is_some_and(|all| all.starts.len() > 1),
            iterations: iterations.map_or(0, |all| all.count().saturating_sub(1)),
            bytes: sum(false),
            leaked: sum(true),
            left,
            unsure,
        }
    }
}

#[cfg(test)]
mod tests;
