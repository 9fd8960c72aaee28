//! Blocks by the stack that allocated them.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::block::Block;
use gpushim_recording::Recording;

/// Blocks of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// They were made before the recording began, and have no stack.
    pub earlier: bool,
}

/// Name of blocks that were made before the recording began and have no stack.
pub const MADE_BEFORE: &str = "made before the recording began";

/// Sums up blocks by the frames of their stacks, the stacks with most bytes first. Blocks without a
/// stack are two groups: blocks made before the recording began, and the others.
pub fn by_stack<'a>(
    recording: &dyn Recording,
    blocks: impl IntoIterator<Item = &'a Block>,
) -> Vec<Held> {
    let mut frames = FxHashMap::<u32, u64>::default();
    let mut held = FxHashMap::<(u64, bool), Held>::default();
    for block in blocks {
        let key = *frames
            .entry(block.stack)
            .or_insert_with(|| recording.frames(block.stack));
        let earlier = key == 0 && block.earlier;
        let of = held.entry((key, earlier)).or_insert(Held {
            stack: block.stack,
            blocks: 0,
            bytes: 0,
            oldest_ns: block.ns,
            newest_ns: block.ns,
            earlier,
        });
        of.blocks += 1;
        of.bytes = of.bytes.saturating_add(block.size);
        of.oldest_ns = of.oldest_ns.min(block.ns);
        of.newest_ns = of.newest_ns.max(block.ns);
    }
    let mut held: Vec<Held> = held.into_values().collect();
    held.sort_unstable_by_key(|held| (std::cmp::Reverse(held.bytes), held.stack, held.earlier));
    held
}
