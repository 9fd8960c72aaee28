//! A fall of what is live, and what falls have in common.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::swing::Point;
use crate::ledger::{Block, Held};

/// Falls of the same cause, of blocks of the same stack.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drop {
    /// Why.
    pub cause: Cause,
    /// How often.
    pub times: u64,
    /// In how many iterations.
    pub iterations: u64,
    /// In which of them the latest was, from 0.
    pub latest: Option<usize>,
    /// When the first began, ns since the start.
    pub first_ns: u64,
    /// The largest of them; of those that last that which lasts with most.
    #[serde(flatten)]
    pub largest: Fallen,
}

/// One fall.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fallen {
    /// When it began, ns since the start.
    pub ns: u64,
    /// How long it took, ns.
    pub took_ns: u64,
    /// In which iteration it began, from 0.
    pub iteration: Option<usize>,
    /// Bytes that were live then.
    pub from: u64,
    /// Bytes that were left.
    pub to: u64,
    /// By so much it went below where those before it had ended, bytes.
    pub below: u64,
    /// If it lasts: the most that is ever live afterwards is so many bytes less than before.
    pub lasting: Option<u64>,
    /// The thread that freed most.
    pub thread: u32,
    /// Id of the stack of the free that freed most.
    pub freed_by: u32,
    /// Whose blocks they were, those with most bytes first.
    pub holders: Vec<Held>,
}

/// Why memory fell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// A context was reset or destroyed, with all of its memory.
    ContextReset,
    /// The program freed it while this range, its name without numbers, was the innermost.
    Range(String),
    /// The program freed it where one iteration ends and the next begins.
    EndOfIteration,
    /// The program freed it, and allocated little after that.
    EndOfRun,
    /// The program freed it.
    Freed,
    /// The pool or the framework gave memory that was not in use back.
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
    /// It went with its context.
    pub by_context: bool,
}

/// Of things with bytes, that which has most of them, the first of equals; `None` of nothing.
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
