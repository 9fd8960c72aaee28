//! Checks the sum of live bytes that the allocator above announces.

use super::types::Trouble;
use crate::rules;

/// Sum in the last announcement. Tensors may be older than the first announcement, or lie outside
/// the segments. So only differences can be checked.
#[derive(Default)]
pub(super) struct LiveSum {
    last: Option<u64>,
}

impl LiveSum {
    /// Checks the sum after an allocation of `bytes`; `total` includes them.
    pub fn allocated(&mut self, bytes: u64, total: u64) -> Option<Trouble> {
        self.follow(self.last.map(|last| last.wrapping_add(bytes)), total)
    }

    /// Checks the sum after a free of `bytes`; `total` is without them.
    pub fn freed(&mut self, bytes: u64, total: u64) -> Option<Trouble> {
        self.follow(self.last.map(|last| last.wrapping_sub(bytes)), total)
    }

    fn follow(&mut self, expected: Option<u64>, theirs: u64) -> Option<Trouble> {
        self.last = Some(theirs);
        let ours = expected.filter(|ours| *ours != theirs)?;
        rules::must_agree().then_some(Trouble::Sum { ours, theirs })
    }
}
