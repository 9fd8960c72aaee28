//! Limit of the frames of a recording's stacks that are named: a small file can hold stacks of
//! billions.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;

/// Frames of all stacks together that are named in full.
const MOST: usize = 1 << 20;
/// Frames of each further stack that are named, the innermost.
const SHORT: usize = 16;

/// Counts the frames that were named.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    named: usize,
    /// True if a stack was cut, by its id: repeated look-ups give the same frames.
    stacks: FxHashMap<u32, bool>,
    cut: u64,
}

impl Nodes {
    /// Returns the number of frames of a stack that may be named.
    pub(super) fn most(&self, stack: u32) -> usize {
        match self.stacks.get(&stack) {
            Some(false) => usize::MAX,
            None if self.named < MOST => usize::MAX,
            Some(true) | None => SHORT,
        }
    }

    /// Records that `frames` frames of a stack were named.
    pub(super) fn took(&mut self, stack: u32, frames: usize) {
        let is_cut = self.named >= MOST;
        if let Entry::Vacant(place) = self.stacks.entry(stack) {
            place.insert(is_cut);
            self.named = self.named.saturating_add(frames);
            self.cut += u64::from(is_cut && frames >= SHORT);
        }
    }

    /// Returns a sentence about stacks that were cut.
    pub(super) fn problem(&self) -> Option<String> {
        (self.cut > 0).then(|| {
            format!(
                "it has stacks of more than {MOST} frames: of {} only the {SHORT} innermost are named",
                self.cut
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_without_end() {
        let mut nodes = Nodes::default();
        let mut frames = 0;
        for stack in 0..10 * MOST as u32 / 4096 {
            let named = nodes.most(stack).min(4096);
            nodes.took(stack, named);
            frames += named;
        }
        assert!(frames <= MOST + 4096 + 10 * MOST / 4096 * SHORT, "{frames}");
        // Repeated look-ups give the same frames.
        assert_eq!((nodes.most(0), nodes.most(9000)), (usize::MAX, SHORT));
        nodes.took(0, 4096);
        assert_eq!(nodes.most(0), usize::MAX);
        let problem = nodes.problem().expect("some are cut");
        assert!(problem.contains("only the 16 innermost"), "{problem}");
        assert_eq!(Nodes::default().problem(), None);
    }
}
