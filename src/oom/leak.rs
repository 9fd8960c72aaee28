//! Blocks that iterations had left behind when a request failed.

use rustc_hash::{FxHashMap, FxHashSet};

use super::find::Shortage;
use crate::growth::Growth;
use crate::recording::Recording;

/// Blocks that iterations left behind, live at the failed request.
#[derive(Clone, Debug, Default)]
pub(super) struct Leak {
    /// Bytes of all of these blocks.
    pub kept: u64,
    /// Bytes of each iteration.
    pub per_iteration: u64,
    /// Id of the stack that made most of them.
    pub stack: u32,
    /// The places of their allocations among the events.
    pub tickets: FxHashSet<u64>,
}

impl Leak {
    /// Finds the blocks that were live when a request failed, if memory grows.
    pub fn of(recording: &dyn Recording, growth: &Growth, shortage: &Shortage) -> Leak {
        let keepers = growth.keepers.iter();
        let stacks: FxHashSet<u64> = keepers
            .clone()
            .filter(|keeper| keeper.size.is_none())
            .map(|keeper| recording.frames(keeper.stack))
            .collect();
        let sizes: FxHashSet<u64> = keepers.filter_map(|keeper| keeper.size).collect();
        let mut leak = Leak {
            per_iteration: growth.per_iteration.max(0.0) as u64,
            ..Leak::default()
        };
        let mut by_stack = FxHashMap::<u32, u64>::default();
        for block in shortage.blocks.iter().filter(|block| !block.earlier) {
            let is_kept = match recording.frames(block.stack) {
                // Blocks from before the iterations may have the same size.
                0 => block.ns >= growth.steady_ns && sizes.contains(&block.size),
                frames => stacks.contains(&frames),
            };
            if is_kept {
                leak.kept = leak.kept.saturating_add(block.size);
                leak.tickets.insert(block.ticket);
                *by_stack.entry(block.stack).or_default() += block.size;
            }
        }
        let most = by_stack
            .into_iter()
            .max_by_key(|(stack, bytes)| (*bytes, *stack));
        leak.stack = most.map_or(0, |(stack, _)| stack);
        leak
    }
}
