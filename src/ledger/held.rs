//! Blocks by who allocated them.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::block::Block;
use crate::recording::Recording;

/// Blocks of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Id of a stack with these frames; the ranges that were open may differ between the blocks.
    pub stack: u32,
    /// How many.
    pub blocks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// When the oldest was allocated, ns since the start.
    pub oldest_ns: u64,
    /// When the newest was.
    pub newest_ns: u64,
}

/// Sums up blocks by the frames of their stacks, those with most bytes first.
pub fn by_stack<'a>(
    recording: &dyn Recording,
    blocks: impl IntoIterator<Item = &'a Block>,
) -> Vec<Held> {
    let mut frames = FxHashMap::<u32, u64>::default();
    let mut held = FxHashMap::<u64, Held>::default();
    for block in blocks {
        let key = *frames
            .entry(block.stack)
            .or_insert_with(|| recording.frames(block.stack));
        let of = held.entry(key).or_insert(Held {
            stack: block.stack,
            blocks: 0,
            bytes: 0,
            oldest_ns: block.ns,
            newest_ns: block.ns,
        });
        of.blocks += 1;
        of.bytes = of.bytes.saturating_add(block.size);
        of.oldest_ns = of.oldest_ns.min(block.ns);
        of.newest_ns = of.newest_ns.max(block.ns);
    }
    let mut held: Vec<Held> = held.into_values().collect();
    held.sort_unstable_by_key(|held| (std::cmp::Reverse(held.bytes), held.stack));
    held
}
