//! What a pool tells about itself.

use crate::types::{Grant, Source};

/// Counters of one pool, of one device, or of all. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handed out, in blocks.
    pub allocated: u64,
    /// Handed out, as asked for: `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
    pub requested: u64,
    /// Held from the driver: `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
    pub reserved: u64,
    /// Freed blocks that graphs may still use: a part of what is held and not handed out.
    pub quarantined: u64,
    /// Highest `allocated` so far. Over several devices: the sum of theirs.
    pub peak_allocated: u64,
    /// Highest `requested`, likewise, since it was last reset: `..._USED_MEM_HIGH`.
    pub peak_requested: u64,
    /// Highest `reserved`, likewise, since it was last reset: `..._RESERVED_MEM_HIGH`.
    pub peak_reserved: u64,
    /// Blocks handed out now.
    pub live: u64,
    /// Requests answered by a block whose work was known to be complete or ordered.
    pub hits: u64,
    /// Requests answered after later work was ordered behind the block's.
    pub ordered: u64,
    /// Requests answered after the host waited for the block's work.
    pub waited: u64,
    /// Requests answered with new memory from the driver, or with memory that was moved.
    pub grown: u64,
    /// Frees.
    pub freed: u64,
    /// Bytes of them, in blocks. Of stream-ordered pools.
    pub freed_bytes: u64,
    /// Pieces of memory, or driver allocations, got from the driver. Of stream-ordered pools.
    pub created: u64,
    /// Pieces of memory, or driver allocations, given back.
    pub released: u64,
    /// Pieces of memory that were unmapped and mapped elsewhere, once their work was over.
    pub moved: u64,
    /// Pieces of memory that were mapped elsewhere while earlier work still used them where they were.
    pub aliased: u64,
    /// Waits of the host for work that used memory which had to go back. Of stream-ordered pools.
    pub host_waits: u64,
    /// Requests refused for want of memory.
    pub out_of_memory: u64,
    /// Blocks that waited for captures or graphs and came back because memory was short.
    pub given_up: u64,
}

impl Stats {
    /// Bytes held from the driver and not handed out.
    pub fn cached(&self) -> u64 {
        self.reserved.saturating_sub(self.allocated)
    }

    /// Adds the figures of another device or pool.
    pub fn add(&mut self, other: &Stats) {
        let pairs = [
            (&mut self.allocated, other.allocated),
            (&mut self.requested, other.requested),
            (&mut self.reserved, other.reserved),
            (&mut self.quarantined, other.quarantined),
            (&mut self.peak_allocated, other.peak_allocated),
            (&mut self.peak_requested, other.peak_requested),
            (&mut self.peak_reserved, other.peak_reserved),
            (&mut self.live, other.live),
            (&mut self.hits, other.hits),
            (&mut self.ordered, other.ordered),
            (&mut self.waited, other.waited),
            (&mut self.grown, other.grown),
            (&mut self.freed, other.freed),
            (&mut self.freed_bytes, other.freed_bytes),
            (&mut self.created, other.created),
            (&mut self.released, other.released),
            (&mut self.moved, other.moved),
            (&mut self.aliased, other.aliased),
            (&mut self.host_waits, other.host_waits),
            (&mut self.out_of_memory, other.out_of_memory),
            (&mut self.given_up, other.given_up),
        ];
        for (mine, theirs) in pairs {
            *mine += theirs;
        }
    }

    /// A block was handed out.
    #[inline(always)]
    pub(crate) fn granted(&mut self, grant: &Grant) {
        self.requested += grant.requested;
        self.allocated += grant.size;
        self.peak_requested = self.peak_requested.max(self.requested);
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.live += 1;
        match grant.source {
            Source::Hit => self.hits += 1,
            Source::Ordered => self.ordered += 1,
            Source::Waited => self.waited += 1,
            Source::Grown => self.grown += 1,
        }
    }

    /// A block came back.
    #[inline(always)]
    pub(crate) fn freed(&mut self, size: u64, requested: u64) {
        self.requested = self.requested.saturating_sub(requested);
        self.allocated = self.allocated.saturating_sub(size);
        self.live = self.live.saturating_sub(1);
        self.freed += 1;
        self.freed_bytes += size;
    }

    /// Memory came from the driver.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    /// Memory went back.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
    }
}
