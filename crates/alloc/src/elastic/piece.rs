//! Pieces: memory of several pages that is mapped, and moves, as one.
//!
//! A move costs 60 microseconds on an H100, whatever the size (`docs/measurements/2026-11-25-elastic.md`). So a large tensor
//! gets large pieces. A piece is hollow only when all of its pages are, so that one which is large beside its tensor
//! would keep memory of others.

use super::driver::{Handle, PAGE};

/// Sizes of pieces: size `n` has `1 << n` pages, up to 32 MiB.
pub const SIZES: usize = 5;

/// A tensor has this many pieces or more, if it has as many pages.
const LEAST_PIECES: usize = 4;

/// Memory at its place in a segment.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub memory: Handle,
    /// Its pages that have a tensor or are pinned.
    pub kept: usize,
    /// When the last of them was left; 0: one is kept, or all were from the beginning.
    pub emptied: u64,
}

impl Piece {
    /// Bytes that no other place can have.
    pub fn kept_bytes(&self) -> u64 {
        if self.kept > 0 { self.memory.bytes } else { 0 }
    }
}

/// Bytes of all pieces.
#[derive(Clone, Copy, Default)]
pub(super) struct Held {
    /// Of the device's memory.
    pub now: u64,
    /// In pieces with a page that has a tensor or is pinned.
    kept: u64,
    /// The most that was kept at a time.
    most: u64,
}

impl Held {
    /// A piece is there.
    pub fn put(&mut self, piece: &Piece) {
        self.now += if piece.memory.is_host {
            0
        } else {
            piece.memory.bytes
        };
        self.keep(piece.kept_bytes() as i64);
    }

    /// A piece is there no more.
    pub fn take(&mut self, piece: &Piece) {
        self.now -= if piece.memory.is_host {
            0
        } else {
            piece.memory.bytes
        };
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

/// The size of pieces for a tensor on this many pages, at most `largest`.
pub fn size_for(pages: usize, largest: usize) -> usize {
    fitting(pages / LEAST_PIECES).min(largest)
}

/// The largest size of this many pages or fewer; the smallest if there is none.
pub fn fitting(pages: usize) -> usize {
    (pages.max(1).ilog2() as usize).min(SIZES - 1)
}

/// Bytes of a size.
pub(super) fn bytes_of(size: usize) -> u64 {
    PAGE << size
}

/// The size of memory.
pub(super) fn size_of(memory: Handle) -> usize {
    fitting(pages_of(memory))
}

/// Pages of memory.
pub(super) fn pages_of(memory: Handle) -> usize {
    (memory.bytes / PAGE) as usize
}
