//! A fall of live memory, and a group of similar falls.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::swing::Point;
use crate::ledger::{Block, Held};

/// Falls of the same cause, of blocks of the same stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Drop {
    /// Why.
    pub cause: Cause,
    /// How often.
    pub times: u64,
    /// In how many iterations.
    pub iterations: u64,
    /// The iteration of the latest fall, from 0.
    pub latest: Option<usize>,
    /// When the first began, ns since the start.
    pub first_ns: u64,
    /// The largest fall of the group; if any lasts, the lasting one with most bytes.
    #[serde(flatten)]
    pub largest: Fallen,
}

/// One fall.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fallen {
    /// When it began, ns since the start.
    pub ns: u64,
    /// How long it took, ns.
    pub took_ns: u64,
    /// In which iteration it began, from 0.
    pub iteration: Option<usize>,
    /// Live bytes at its beginning.
    pub from: u64,
    /// Live bytes at its end.
    pub to: u64,
    /// Bytes by which it ended below the falls before it.
    pub below: u64,
    /// If it lasts: bytes by which the highest later level is below the level before the fall.
    pub lasting: Option<u64>,
    /// The thread that freed most.
    pub thread: u32,
    /// Id of the stack of the free that freed most.
    pub freed_by: u32,
    /// The stacks that had allocated the blocks, those with most bytes first.
    pub holders: Vec<Held>,
}

/// Why memory fell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A context was reset or destroyed, with all of its memory.
    ContextReset,
    /// The program freed the memory while this range was the innermost; its name without numbers.
    Range(String),
    /// The program freed the memory between two iterations.
    EndOfIteration,
    /// The program freed the memory at the end of the run.
    EndOfRun,
    /// The program freed it.
    Freed,
    /// The pool or the framework released cached memory.
    Trimmed,
}

/// A fall of what is live.
#[derive(Clone, Debug)]
pub(super) struct Fall {
    pub from: Point,
    pub to: Point,
    /// The lowest level at which those before it ended; of the first the lowest before it, once the run was under
    /// way, else 0.
    pub low_before: u64,
    /// What was freed in it and had been there when it began.
    pub gone: Vec<Gone>,
}

/// A block that was freed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone {
    pub block: Block,
    /// The stack id of the event that freed it.
    pub by: u32,
    /// The thread that did.
    pub thread: u32,
    /// It was freed with its context.
    pub by_context: bool,
}

/// The key with most bytes, the first of several; `None` if there are none.
pub(super) fn most(all: impl Iterator<Item = (u32, u64)>) -> Option<u32> {
    let mut sums = FxHashMap::<u32, u64>::default();
    for (what, bytes) in all {
        let sum = sums.entry(what).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let most = sums
        .into_iter()
        .max_by_key(|(what, bytes)| (*bytes, std::cmp::Reverse(*what)));
    most.map(|(what, _)| what)
}
