//! How much memory of the device the segments hold.

/// The share of what pieces had at most that may be held beside it: with a 64th a step that repeats needs a tenth of the
/// calls that it needs without (`docs/measurements/2026-11-25-elastic.md`).
const BESIDE: u64 = 64;

/// Bytes of all memory.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// That is there.
    pub now: u64,
    /// That some piece has.
    kept: u64,
    /// The most that pieces had at a time.
    most: u64,
}

impl Held {
    /// The bytes that pieces have grow by `more`.
    pub fn keep(&mut self, more: i64) {
        self.kept = self.kept.saturating_add_signed(more);
        self.most = self.most.max(self.kept);
    }

    /// Whether more than pieces ever had would be held with these bytes, and a little beside it.
    pub fn exceeds(&self, bytes: u64) -> bool {
        let most = self.most.max(self.kept + bytes);
        self.now + bytes > most + most / BESIDE
    }
}
