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
    /// When the last of them was left; 0: it is not among the emptied ones.
    pub emptied: u64,
}

impl Piece {
    /// Bytes of the device's memory.
    pub fn on_device(&self) -> u64 {
        if self.memory.is_host {
            0
        } else {
            self.memory.bytes
        }
    }

    /// Of those, what no other place can have.
    pub fn kept_bytes(&self) -> u64 {
        if self.kept > 0 { self.on_device() } else { 0 }
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
