//! What the pool tells about itself.

/// Counters of one device, or of all. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Handed out, in blocks.
    pub allocated: u64,
    /// Handed out, as asked for.
    pub requested: u64,
    /// Held from the driver.
    pub reserved: u64,
    /// Held from the driver and not handed out: `reserved` less `allocated`.
    pub cached: u64,
    /// The part of `cached` that graphs may still use.
    pub quarantined: u64,
    /// Highest `allocated` so far. Over several devices: the sum of theirs.
    pub peak_allocated: u64,
    /// Highest `requested` so far, likewise.
    pub peak_requested: u64,
    /// Highest `reserved` so far, likewise.
    pub peak_reserved: u64,
    /// Blocks handed out now.
    pub live: u64,
    /// Requests answered by a block whose work was known to be complete or ordered.
    pub hits: u64,
    /// Requests answered after later work was ordered behind the block's.
    pub ordered: u64,
    /// Requests answered after the host waited for the block's work.
    pub waited: u64,
    /// Requests answered with new memory from the driver.
    pub grown: u64,
    /// Frees.
    pub freed: u64,
    /// Driver allocations given back.
    pub released: u64,
    /// Bytes of them.
    pub released_bytes: u64,
    /// Requests refused for want of memory.
    pub out_of_memory: u64,
    /// How often memory was so short that blocks came back which graphs may still use.
    pub given_up: u64,
}

impl Stats {
    /// Adds the figures of another device.
    pub(super) fn add(&mut self, other: &Stats) {
        let pairs = [
            (&mut self.allocated, other.allocated),
            (&mut self.requested, other.requested),
            (&mut self.reserved, other.reserved),
            (&mut self.cached, other.cached),
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
            (&mut self.released, other.released),
            (&mut self.released_bytes, other.released_bytes),
            (&mut self.out_of_memory, other.out_of_memory),
            (&mut self.given_up, other.given_up),
        ];
        for (mine, theirs) in pairs {
            *mine += theirs;
        }
    }
}
