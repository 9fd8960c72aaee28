//! Pieces: pages side by side that are mapped as one.
//!
//! A call of the driver takes the same time whatever the size (`docs/measurements/2026-11-25-elastic.md`). So a large tensor
//! gets large pieces. Memory is spare only when all pages of its piece are empty, so that a piece which is large beside its
//! tensor would keep memory of others.

use super::pages::{Handle, PAGE};
use crate::slab::Id;

/// Sizes of pieces: size `n` has `1 << n` pages, up to 8 MiB.
pub(super) const SIZES: usize = 3;

/// A tensor has this many pieces or more, if it has as many pages.
const LEAST_PIECES: usize = 4;

/// Pages of a segment at which memory is mapped.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub memory: Id,
    /// The memory is its own now: no other piece has it, and it is not spare.
    pub owns_memory: bool,
    pub pages: usize,
    /// Live tensors that are on it.
    pub tensors: u32,
    /// It keeps its memory: a graph may use it without telling, or another process.
    pub is_pinned: bool,
    /// When its last tensor left it.
    pub left: u64,
    /// The stream that orders all work of its tensors, if there is one.
    pub stream: Option<u8>,
}

impl Piece {
    /// Whether it keeps its memory for now.
    pub fn must_keep(&self) -> bool {
        self.tensors > 0 || self.is_pinned
    }

    /// Whether it has memory that could be spare (`idle.rs`).
    pub fn is_idle(&self) -> bool {
        self.owns_memory && !self.must_keep()
    }

    /// Work of this stream uses it, too.
    pub fn orders(&mut self, stream: Option<u8>) {
        if self.stream != stream {
            self.stream = None;
        }
    }
}

/// The size of pieces for a tensor on this many pages, at most `largest`.
pub(super) fn size_for(pages: usize, largest: usize) -> usize {
    fitting(pages / LEAST_PIECES).min(largest)
}

/// The largest size of this many pages or fewer; the smallest if there is none.
pub(super) fn fitting(pages: usize) -> usize {
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
