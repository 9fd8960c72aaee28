//! Allocated and live bytes by stack.

use rustc_hash::FxHashMap;

use super::complete_events::{Change, CompleteEvents};

/// What to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Measure {
    /// Bytes held when most memory was.
    #[default]
    Peak,
    /// Bytes held at the end.
    Live,
    /// Bytes allocated in all.
    Allocated,
    /// Allocations.
    Count,
}

/// Sums of one stack's allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub allocations: u64,
    pub allocated: u64,
    pub live_blocks: u64,
    pub live: u64,
    pub peak: u64,
}

impl Sums {
    /// Sum that a measure selects.
    pub(super) fn get(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Peak => self.peak,
            Measure::Live => self.live,
            Measure::Allocated => self.allocated,
            Measure::Count => self.allocations,
        }
    }
}

/// The sums of all stacks of a run, by their ids; 0 is for blocks without a stack.
pub(super) fn profile(story: &CompleteEvents<'_>) -> Vec<(u32, Sums)> {
    let mut sums: FxHashMap<u32, Sums> = FxHashMap::default();
    let (mut now, mut peak, mut at) = (0_u64, 0, 0);
    let mut holders = story.holders();
    for (place, record) in story.events().enumerate() {
        holders.feed(story, &record, |change| match change {
            Change::Made(block, _) => {
                let sums = sums.entry(block.stack).or_default();
                sums.allocations += 1;
                sums.allocated = sums.allocated.saturating_add(block.size);
                sums.live_blocks += 1;
                sums.live = sums.live.saturating_add(block.size);
                now = now.saturating_add(block.size);
            }
            Change::Dropped(block, _) => {
                let sums = sums.entry(block.stack).or_default();
                sums.live_blocks = sums.live_blocks.saturating_sub(1);
                sums.live = sums.live.saturating_sub(block.size);
                now = now.saturating_sub(block.size);
            }
            Change::Taken(..) | Change::Given(_) => {}
        });
        if now > peak {
            (peak, at) = (now, place);
        }
    }
    // Once more, up to the peak.
    let mut holders = story.holders();
    for record in story.events().take(at + 1) {
        holders.feed(story, &record, |_| {});
    }
    for (block, _) in holders.blocks() {
        let sums = sums.entry(block.stack).or_default();
        sums.peak = sums.peak.saturating_add(block.size);
    }
    let mut sums: Vec<(u32, Sums)> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(stack, _)| *stack);
    sums
}
