//! What iterations leave behind: blocks that outlive them, by the stack that allocated them, or by their size where
//! no stack was recorded.
//!
//! [`Lifetimes`] follows the blocks through the iterations; [`Kept`] is what stays live at the beginning of the last
//! one, with what of it each iteration, or each n-th one, left behind. `pattern` decides what that is.

use rustc_hash::FxHashMap;

use super::Start;
use crate::ledger::{Block, Unseen, in_order};
use crate::recording::Recording;

mod groups;
mod level;
mod names;
mod pattern;
#[cfg(test)]
mod tests;

pub use groups::Kept;
pub use level::Steady;
pub use names::{in_a_sentence, in_a_table};
use pattern::History;

/// Lifetimes that are remembered, 12 bytes each; later ones are left out.
const REMEMBERED: usize = 1 << 20;

/// Blocks that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Group {
    /// Those of the same frames: the number that [`Recording::frames`] gives.
    Stack(u64),
    /// Those without a stack, of this many bytes.
    Size(u64),
    /// Those that were made before the recording began, and have no stack.
    Earlier,
}

/// Tells the group of a block.
#[derive(Debug, Default)]
pub(super) struct Groups(FxHashMap<u32, u64>);

impl Groups {
    pub(super) fn of(&mut self, recording: &dyn Recording, block: &Block) -> Group {
        let frames = self.0.entry(block.stack);
        match *frames.or_insert_with(|| recording.frames(block.stack)) {
            0 if block.earlier => Group::Earlier,
            0 => Group::Size(block.size),
            frames => Group::Stack(frames),
        }
    }
}

/// How long blocks live, counted in iterations, while the events are gone through.
#[derive(Debug, Default)]
pub struct Lifetimes {
    /// Whether the user set what begins an iteration.
    are_set: bool,
    now: u64,
    highest: u64,
    levels: Vec<u64>,
    starts: Vec<Start>,
    /// Blocks that were live when the iteration began that is under way, and were freed since.
    freed_since: Vec<Block>,
    groups: Groups,
    histories: FxHashMap<Group, History>,
    remembered: usize,
}

impl Lifetimes {
    /// Of iterations that the user set, or that were found.
    pub fn of_iterations(are_set: bool) -> Lifetimes {
        Lifetimes {
            are_set,
            ..Lifetimes::default()
        }
    }

    /// An iteration begins.
    pub fn begin(&mut self, recording: &dyn Recording, here: Start) {
        let under_way = self.starts.len().saturating_sub(1);
        for block in self.freed_since.drain(..) {
            let Some(born) = born(&self.starts, block.ticket) else {
                continue;
            };
            let lived = under_way.saturating_sub(born);
            if lived < pattern::LONG || self.remembered >= REMEMBERED {
                continue;
            }
            let group = self.groups.of(recording, &block);
            let history = self.histories.entry(group).or_default();
            self.remembered += usize::from(history.add(born, lived));
        }
        self.levels.push(self.now);
        self.starts.push(here);
    }

    /// When the iteration began that is under way.
    pub fn begun(&self) -> Option<Start> {
        self.starts.last().copied()
    }

    /// A block begins to live. Returns how many bytes are live then.
    pub fn allocated(&mut self, block: &Block) -> u64 {
        self.now = self.now.saturating_add(block.size);
        self.highest = self.highest.max(self.now);
        self.now
    }

    /// A block ends.
    pub fn freed(&mut self, block: &Block) {
        self.now = self.now.saturating_sub(block.size);
        if self
            .begun()
            .is_some_and(|begun| block.ticket < begun.ticket)
        {
            self.freed_since.push(*block);
        }
    }

    /// After the last event: of the blocks that are live then, those that were live when the last iteration began,
    /// with those that were freed since; the oldest first. Where there are no iterations, what is live at the end.
    fn live_at_last(&mut self, mut live: FxHashMap<u64, Block>) -> Vec<Block> {
        if let Some(begun) = self.begun() {
            live.retain(|_, block| block.ticket < begun.ticket);
            let freed = self.freed_since.drain(..);
            live.extend(freed.map(|block| (block.address, block)));
        }
        in_order(live)
    }

    /// After the last event: what was kept, given the blocks that are live then, and those of which only the end is known.
    pub fn finish(
        mut self,
        recording: &dyn Recording,
        live: FxHashMap<u64, Block>,
        unseen: &Unseen,
    ) -> Kept {
        let starts = &self.starts;
        unseen.add_to(&mut self.levels, |number| Some(starts.get(number)?.ticket));
        self.highest = self.levels.iter().copied().fold(self.highest, u64::max);
        // They are the oldest.
        let last = self.begun().map_or(u64::MAX, |begun| begun.ticket);
        let unseen: Vec<Block> = unseen.live_at(last).collect();
        let live = [unseen, self.live_at_last(live)].concat();
        Kept::new(recording, self, live)
    }
}

/// The iteration in which something happened, by where each begins; `None` before the first.
fn born(starts: &[Start], ticket: u64) -> Option<usize> {
    starts
        .partition_point(|start| start.ticket <= ticket)
        .checked_sub(1)
}
