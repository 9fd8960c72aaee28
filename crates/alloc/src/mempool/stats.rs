//! What a pool tells about itself.

use super::types::Grant;
use crate::pool::Source;

/// Counters of one pool. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handed out, as asked for: `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
    pub requested: u64,
    /// Highest `requested` since it was last reset: `..._USED_MEM_HIGH`.
    pub peak_requested: u64,
    /// Handed out, in blocks.
    pub allocated: u64,
    /// Highest `allocated` so far.
    pub peak_allocated: u64,
    /// Held from the driver: `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
    pub reserved: u64,
    /// Highest `reserved` since it was last reset: `..._RESERVED_MEM_HIGH`.
    pub peak_reserved: u64,
    /// Freed blocks that graphs may still use.
    pub quarantined: u64,
    /// Blocks that waited for captures or graphs and came back because memory was short.
    pub given_up: u64,
    /// Blocks handed out now.
    pub live: u64,
    /// Requests answered by a block that the stream could use as it was.
    pub hits: u64,
    /// Requests answered after the stream was made to wait for another.
    pub ordered: u64,
    /// Requests for which memory was moved or got from the driver.
    pub grown: u64,
    /// Frees.
    pub freed: u64,
    /// Bytes of them, in blocks.
    pub freed_bytes: u64,
    /// Pieces of memory that were unmapped and mapped elsewhere, once their work was over.
    pub moved: u64,
    /// Pieces of memory that were mapped elsewhere while earlier work still used them where they were.
    pub aliased: u64,
    /// Waits on the host for work that used memory which had to go back.
    pub waited: u64,
    /// Pieces of memory got from the driver.
    pub created: u64,
    /// Pieces of memory given back.
    pub released: u64,
    /// Requests refused for want of memory.
    pub out_of_memory: u64,
}

impl Stats {
    #[inline(always)]
    pub(super) fn granted(&mut self, grant: &Grant) {
        self.requested += grant.requested;
        self.allocated += grant.size;
        self.peak_requested = self.peak_requested.max(self.requested);
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.live += 1;
        match grant.source {
            Source::Hit => self.hits += 1,
            Source::Ordered | Source::Waited => self.ordered += 1,
            Source::Grown => self.grown += 1,
        }
    }

    #[inline(always)]
    pub(super) fn freed(&mut self, size: u64, requested: u64) {
        self.requested = self.requested.saturating_sub(requested);
        self.allocated = self.allocated.saturating_sub(size);
        self.live = self.live.saturating_sub(1);
        self.freed += 1;
        self.freed_bytes += size;
    }

    pub(super) fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    pub(super) fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }
}
