//! Pieces: adjacent pages that are mapped by one call.
//!
//! A call of the driver takes the same time for any size
//! (`docs/measurements/2026-11-25-elastic.md`). So a large tensor gets large pieces. Memory is
//! spare only when all pages of its piece are empty. A piece that is large compared with its tensor
//! would therefore keep memory from others.

use super::pages::{Handle, PAGE};
use crate::slab::Id;

/// Sizes of pieces: size `n` has `1 << n` pages, up to 8 MiB.
pub(super) const SIZES: usize = 3;

/// A tensor has this many pieces or more, if it has as many pages.
const LEAST_PIECES: usize = 4;

/// Pages of a segment at which memory is mapped. It has 24 bytes, as an announcement reads all of its
/// tensor's.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub memory: Id,
    /// True while the memory belongs to this piece: no other piece has it, and it is not spare.
    pub owns_memory: bool,
    /// Binary logarithm of its number of pages: see [`SIZES`].
    pub size: u8,
    /// Number of live tensors on it.
    pub tensors: u32,
    /// True if it keeps its memory: a graph or another process may use it without an announcement.
    pub is_pinned: bool,
    /// Time at which its last tensor left it.
    pub left: u64,
    /// The stream that orders all work of its tensors, if there is one.
    pub stream: Option<u8>,
}

impl Piece {
    pub fn pages(&self) -> usize {
        1 << self.size
    }

    /// True while a tensor is on it or it is pinned.
    pub fn must_keep(&self) -> bool {
        self.tensors > 0 || self.is_pinned
    }

    /// True if it has memory that could be spare (`idle.rs`).
    pub fn is_idle(&self) -> bool {
        self.owns_memory && !self.must_keep()
    }

    /// Notes that work of this stream uses it, too.
    pub fn orders(&mut self, stream: Option<u8>) {
        if self.stream != stream {
            self.stream = None;
        }
    }
}

/// Size of pieces for a tensor on this many pages, at most `largest`.
pub(super) fn size_for(pages: usize, largest: usize) -> usize {
    fitting(pages / LEAST_PIECES).min(largest)
}

/// Largest size that has at most this many pages; the smallest size for 0 pages.
pub(super) fn fitting(pages: usize) -> usize {
    (pages.max(1).ilog2() as usize).min(SIZES - 1)
}

/// Bytes of a piece of this size.
pub(super) fn bytes_of(size: usize) -> u64 {
    PAGE << size
}

/// Size of a piece with this memory.
pub(super) fn size_of(memory: Handle) -> usize {
    fitting(pages_of(memory))
}

/// Number of pages of this memory.
pub(super) fn pages_of(memory: Handle) -> usize {
    (memory.bytes / PAGE) as usize
}
