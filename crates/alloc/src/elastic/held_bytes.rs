//! Number of bytes of the device's memory that the segments hold.

/// Share of the most bytes that pieces had, which may be held beside them. With a 64th, a step that
/// repeats needs a tenth of the calls that it needs without
/// (`docs/measurements/2026-11-25-elastic.md`).
const BESIDE: u64 = 64;

/// Counts of bytes of the device's memory.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// Bytes that the segments hold.
    pub now: u64,
    /// Bytes that some piece has.
    pub kept: u64,
    /// Most bytes that pieces had at a time.
    most: u64,
}

impl Held {
    /// Bytes that no piece has.
    pub fn spare(&self) -> u64 {
        self.now.saturating_sub(self.kept)
    }

    /// Changes the bytes that pieces have by `more`.
    pub fn keep(&mut self, more: i64) {
        self.kept = self.kept.saturating_add_signed(more);
        self.most = self.most.max(self.kept);
    }

    /// True if holding `bytes` more would exceed the most that pieces had, and a 64th of it. The
    /// bytes count as a piece's.
    pub fn exceeds(&self, bytes: u64) -> bool {
        let most = self.most.max(self.kept + bytes);
        self.now + bytes > most + most / BESIDE
    }
}
