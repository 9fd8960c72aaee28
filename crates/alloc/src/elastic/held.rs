//! How much memory of the device the segments hold.

use super::piece::Piece;

/// Bytes of all pieces.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// That are there.
    pub now: u64,
    /// In pieces with a page that has a tensor or is pinned.
    kept: u64,
    /// The most that was kept at a time.
    most: u64,
}

impl Held {
    /// A piece is there.
    pub fn put(&mut self, piece: &Piece) {
        self.now += piece.on_device();
        self.keep(piece.kept_bytes() as i64);
    }

    /// A piece is there no more.
    pub fn take(&mut self, piece: &Piece) {
        self.now -= piece.on_device();
        self.keep(-(piece.kept_bytes() as i64));
    }

    /// So many bytes more are kept.
    pub fn keep(&mut self, more: i64) {
        self.kept = self.kept.saturating_add_signed(more);
        self.most = self.most.max(self.kept);
    }

    /// Whether more than was ever kept would be held with these bytes.
    pub fn exceeds(&self, bytes: u64) -> bool {
        self.now + bytes > self.most.max(self.kept + bytes)
    }
}
