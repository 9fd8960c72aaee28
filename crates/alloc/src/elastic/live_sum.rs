//! The sum of live bytes: by the announcements, and as the allocator above tells it.

use super::types::Trouble;
use crate::rules;

/// The sum of the last announcement. Tensors may be older than the first one, and elsewhere than in our segments, so only
/// differences can be checked.
#[derive(Default)]
pub(super) struct LiveSum {
    last: Option<u64>,
}

impl LiveSum {
    /// A tensor was allocated; this many bytes are live with it.
    pub fn allocated(&mut self, bytes: u64, total: u64) -> Option<Trouble> {
        self.follow(self.last.map(|last| last.wrapping_add(bytes)), total)
    }

    /// A tensor was freed; this many bytes are live without it.
    pub fn freed(&mut self, bytes: u64, total: u64) -> Option<Trouble> {
        self.follow(self.last.map(|last| last.wrapping_sub(bytes)), total)
    }

    fn follow(&mut self, expected: Option<u64>, theirs: u64) -> Option<Trouble> {
        self.last = Some(theirs);
        let ours = expected.filter(|ours| *ours != theirs)?;
        rules::must_agree().then_some(Trouble::Sum { ours, theirs })
    }
}
