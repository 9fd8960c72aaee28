//! Counters that a pool keeps.

use crate::size_class::PAGE;
use crate::types::{Grant, Source};

/// Counters of one pool, of one device, or of all. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of the blocks that are allocated.
    pub allocated: u64,
    /// Bytes that callers requested in these blocks.
    pub requested: u64,
    /// Bytes held from the driver.
    pub reserved: u64,
    /// Bytes of freed blocks that graphs may still use: a part of the bytes held and not allocated.
    pub quarantined: u64,
    /// Highest `allocated` so far. Over several devices, the sum of their peaks.
    pub peak_allocated: u64,
    /// Highest `requested`, likewise, since it was last reset.
    pub peak_requested: u64,
    /// Highest `reserved`, likewise, since it was last reset.
    pub peak_reserved: u64,
    /// Number of allocated blocks.
    pub live: u64,
    /// Requests answered by a block whose work was known to be complete or ordered.
    pub hits: u64,
    /// Requests answered after later work was ordered behind the block's work.
    pub ordered: u64,
    /// Requests answered after the host waited for the block's work.
    pub waited: u64,
    /// Requests answered with new memory from the driver, or with memory that was moved.
    pub grown: u64,
    /// Number of blocks freed so far.
    pub freed: u64,
    /// Bytes of the freed blocks. Only in stream-ordered pools.
    pub freed_bytes: u64,
    /// Pieces of memory, or driver allocations, got from the driver. Only in stream-ordered pools.
    pub created: u64,
    /// Pieces of memory, or driver allocations, given back to the driver.
    pub released: u64,
    /// Pieces of memory that were unmapped and mapped elsewhere, once their work was complete.
    pub moved: u64,
    /// Pieces of memory that were mapped elsewhere while earlier work still used them at their
    /// former address.
    pub aliased: u64,
    /// Waits of the host for work on free memory, when memory was short or before exported memory
    /// was given back. Only in stream-ordered pools.
    pub host_waits: u64,
    /// Counters of both families, once a pool of streams has served `cudaMalloc`, too.
    pub(crate) shared: Option<Shared>,
    /// Requests refused because memory ran out.
    pub out_of_memory: u64,
    /// Blocks that waited for captures or graphs and were freed because memory was short.
    pub given_up: u64,
}

/// Counters of both families in a pool of streams that serves `cudaMalloc`, too. Sizes are in
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Bytes allocated for no particular stream, as by `cudaMalloc`: in blocks, and as requested.
    pub allocated: u64,
    pub requested: u64,
    /// Highest `allocated` in this window of time, and in the window before.
    pub recent: [u64; 2],
    /// Bytes held for streams, in whole pages: the most since they were last trimmed, less the part
    /// that `cudaMalloc` took.
    for_streams: u64,
    /// Peaks of streams since they were last reset.
    peak_requested: u64,
    peak_for_streams: u64,
}

/// Changes in a thread cache that the pool has yet to count. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delta {
    /// Bytes allocated less bytes freed, in blocks and as requested. Negative if more was freed.
    allocated: i64,
    requested: i64,
    /// Peaks of these two differences.
    most_allocated: i64,
    most_requested: i64,
    pub granted: u64,
    freed: u64,
    freed_bytes: u64,
}

impl Delta {
    #[inline(always)]
    pub fn granted(&mut self, size: u64, requested: u64) {
        self.allocated += size as i64;
        self.requested += requested as i64;
        self.most_allocated = self.most_allocated.max(self.allocated);
        self.most_requested = self.most_requested.max(self.requested);
        self.granted += 1;
    }

    #[inline(always)]
    pub fn freed(&mut self, size: u64, requested: u64) {
        self.allocated -= size as i64;
        self.requested -= requested as i64;
        self.freed += 1;
        self.freed_bytes += size;
    }

    /// True if nothing was allocated or freed.
    #[inline(always)]
    pub fn is_none(&self) -> bool {
        self.granted + self.freed == 0
    }
}

impl Stats {
    /// Bytes held from the driver and not allocated.
    pub fn cached(&self) -> u64 {
        self.reserved.saturating_sub(self.allocated)
    }

    /// Bytes kept for `cudaMalloc` in a pool of streams: the most that it had allocated in this
    /// window of time or the one before.
    pub fn kept_for_all(&self) -> u64 {
        self.shared.map_or(0, |shared| {
            let [now, before] = shared.recent;
            now.max(before)
        })
    }

    /// Bytes that a pool of streams holds for `cudaMalloc` and has not allocated.
    pub fn cached_for_all(&self) -> u64 {
        let allocated = self.shared.map_or(0, |shared| shared.allocated);
        self.reserved
            .saturating_sub(self.reserved_on_streams())
            .saturating_sub(allocated)
    }

    /// Bytes allocated on streams, as requested: `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
    pub fn requested_on_streams(&self) -> u64 {
        let for_all = self.shared.map_or(0, |shared| shared.requested);
        self.requested.saturating_sub(for_all)
    }

    /// Highest [`Stats::requested_on_streams`] since it was last reset:
    /// `CU_MEMPOOL_ATTR_USED_MEM_HIGH`.
    pub fn peak_requested_on_streams(&self) -> u64 {
        self.shared
            .map_or(self.peak_requested, |shared| shared.peak_requested)
    }

    /// Bytes held for present and later blocks of streams: `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
    /// As natively, they are whole pages and do not change with each small block.
    pub fn reserved_on_streams(&self) -> u64 {
        self.shared
            .map_or(pages(self.reserved), |shared| shared.for_streams)
    }

    /// Highest [`Stats::reserved_on_streams`] since it was last reset:
    /// `CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`.
    pub fn peak_reserved_on_streams(&self) -> u64 {
        self.shared
            .map_or(pages(self.peak_reserved), |shared| shared.peak_for_streams)
    }

    /// Adds the counters of another device or pool.
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

    /// Counts an allocated block.
    #[inline(always)]
    pub(crate) fn granted(&mut self, grant: &Grant) {
        self.requested += grant.requested;
        self.allocated += grant.size;
        self.peak_requested = self.peak_requested.max(self.requested);
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.live += 1;
        *self.of_source(grant.source) += 1;
    }

    /// Counts an answered request under another source.
    pub(crate) fn corrected(&mut self, from: Source, to: Source) {
        *self.of_source(from) -= 1;
        *self.of_source(to) += 1;
    }

    #[inline(always)]
    fn of_source(&mut self, source: Source) -> &mut u64 {
        match source {
            Source::Hit => &mut self.hits,
            Source::Ordered => &mut self.ordered,
            Source::Waited => &mut self.waited,
            Source::Grown => &mut self.grown,
        }
    }

    /// Starts to count `cudaMalloc` apart in a pool of streams. All memory held so far counts as
    /// held for streams.
    #[cold]
    pub(crate) fn share(&mut self) {
        self.shared.get_or_insert(Shared {
            for_streams: pages(self.reserved),
            peak_requested: self.peak_requested,
            peak_for_streams: pages(self.peak_reserved),
            ..Shared::default()
        });
    }

    /// Counts a block in a pool of both families, in addition to [`Stats::granted`]. `for_all`: it
    /// is for no particular stream.
    #[inline]
    pub(crate) fn granted_shared(&mut self, grant: &Grant, for_all: bool) {
        if let Some(shared) = &mut self.shared
            && for_all
        {
            shared.allocated += grant.size;
            shared.requested += grant.requested;
            let [now, _] = &mut shared.recent;
            *now = shared.allocated.max(*now);
        }
        self.divide();
    }

    /// Counts a freed block of no particular stream, in addition to [`Stats::freed`].
    #[inline]
    pub(crate) fn freed_for_all(&mut self, size: u64, requested: u64) {
        if let Some(shared) = &mut self.shared {
            shared.allocated = shared.allocated.saturating_sub(size);
            shared.requested = shared.requested.saturating_sub(requested);
        }
    }

    /// Limits the bytes held for streams to `keep`: a synchronisation or the program returned the
    /// rest.
    pub(crate) fn trimmed_on_streams(&mut self, keep: u64) {
        if let Some(shared) = &mut self.shared {
            shared.for_streams = shared.for_streams.min(keep);
            self.divide();
        }
    }

    /// Begins a new window of time.
    pub(crate) fn roll(&mut self) {
        if let Some(shared) = &mut self.shared {
            let [now, _] = shared.recent;
            shared.recent = [shared.allocated, now];
        }
    }

    /// Resets the peaks of requested bytes to their present number.
    pub(crate) fn reset_peak_requested(&mut self) {
        self.peak_requested = self.requested;
        let now = self.requested_on_streams();
        if let Some(shared) = &mut self.shared {
            shared.peak_requested = now;
        }
    }

    /// Resets the peaks of bytes held to their present number.
    pub(crate) fn reset_peak_reserved(&mut self) {
        self.peak_reserved = self.reserved;
        if let Some(shared) = &mut self.shared {
            shared.peak_for_streams = shared.for_streams;
        }
    }

    /// Divides the bytes held between streams and `cudaMalloc`, and updates the peaks of streams.
    #[inline]
    fn divide(&mut self) {
        let requested = self.requested_on_streams();
        if let Some(shared) = &mut self.shared {
            let allocated = self.allocated.saturating_sub(shared.allocated);
            // Pages that `cudaMalloc` fills are no longer for streams; a page may be for both.
            let rest = self
                .reserved
                .saturating_sub(shared.allocated - shared.allocated % PAGE);
            shared.for_streams = shared.for_streams.max(pages(allocated)).min(rest);
            shared.peak_requested = shared.peak_requested.max(requested.min(shared.for_streams));
            shared.peak_for_streams = shared.peak_for_streams.max(shared.for_streams);
        }
    }

    /// Counts a block that is freed.
    #[inline(always)]
    pub(crate) fn freed(&mut self, size: u64, requested: u64) {
        self.requested = self.requested.saturating_sub(requested);
        self.allocated = self.allocated.saturating_sub(size);
        self.live = self.live.saturating_sub(1);
        self.freed += 1;
        self.freed_bytes += size;
    }

    /// Adds the changes in a thread cache. The peaks are exact as long as only one thread has
    /// blocks in its cache. Otherwise they may be off by the contents of the caches, but never
    /// exceed the bytes held. `for_all`: the cache's blocks are for no particular stream.
    #[cold]
    pub(crate) fn happened(&mut self, delta: &Delta, for_all: bool) {
        let (allocated, requested) = (self.allocated, self.requested);
        let shared = self.shared;
        if let Some(shared) = &mut self.shared
            && for_all
        {
            shared.allocated = shared.allocated.saturating_add_signed(delta.most_allocated);
            shared.requested = shared.requested.saturating_add_signed(delta.most_requested);
            let [now, _] = &mut shared.recent;
            *now = shared.allocated.max(*now);
        }
        let held = self.reserved;
        let most = |sum: u64, more| sum.saturating_add_signed(more).min(held.max(sum));
        self.allocated = most(allocated, delta.most_allocated);
        self.requested = most(requested, delta.most_requested);
        self.peak_allocated = self.peak_allocated.max(self.allocated);
        self.peak_requested = self.peak_requested.max(self.requested);
        self.divide();
        if let Some((after, before)) = self.shared.as_mut().zip(shared)
            && for_all
        {
            after.allocated = before.allocated.saturating_add_signed(delta.allocated);
            after.requested = before.requested.saturating_add_signed(delta.requested);
        }
        self.allocated = allocated.saturating_add_signed(delta.allocated);
        self.requested = requested.saturating_add_signed(delta.requested);
        self.live = (self.live + delta.granted).saturating_sub(delta.freed);
        self.hits += delta.granted;
        self.freed += delta.freed;
        self.freed_bytes += delta.freed_bytes;
    }

    /// Counts memory got from the driver.
    pub(crate) fn reserve(&mut self, bytes: u64) {
        self.reserved += bytes;
        self.peak_reserved = self.peak_reserved.max(self.reserved);
    }

    /// Counts memory given back to the driver.
    pub(crate) fn release(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_sub(bytes);
        self.divide();
    }
}

/// Rounds bytes up to whole pages.
fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Stamp, UNNUMBERED};

    const MIB: u64 = 1 << 20;

    fn grant(bytes: u64) -> Grant {
        Grant {
            address: 0,
            requested: bytes,
            size: bytes,
            source: Source::Grown,
            after: Stamp::default(),
            number: UNNUMBERED,
        }
    }

    #[test]
    fn what_streams_gave_up_is_not_counted_for_them_again() {
        let mut stats = Stats::default();
        stats.share();
        stats.reserve(200 * MIB);
        // Streams use all of it, free it, and are trimmed. The memory stays, because `cudaMalloc`
        // uses it next.
        stats.granted(&grant(200 * MIB));
        stats.granted_shared(&grant(200 * MIB), false);
        stats.freed(200 * MIB, 200 * MIB);
        assert_eq!(stats.reserved_on_streams(), 200 * MIB);
        stats.trimmed_on_streams(0);
        stats.granted(&grant(200 * MIB));
        stats.granted_shared(&grant(200 * MIB), true);
        stats.freed(200 * MIB, 200 * MIB);
        stats.freed_for_all(200 * MIB, 200 * MIB);
        // Two windows later `cudaMalloc` did not use it recently, and neither did streams.
        stats.roll();
        stats.roll();
        assert_eq!(
            (stats.reserved_on_streams(), stats.cached_for_all()),
            (0, 200 * MIB)
        );
    }

    #[test]
    fn a_page_of_both_is_one_of_the_streams_until_they_are_trimmed() {
        let mut stats = Stats::default();
        stats.share();
        stats.reserve(PAGE);
        let serve = |stats: &mut Stats, bytes, for_all| {
            stats.granted(&grant(bytes));
            stats.granted_shared(&grant(bytes), for_all);
            stats.reserved_on_streams()
        };
        assert_eq!(serve(&mut stats, 4096, true), 0);
        assert_eq!(serve(&mut stats, 1024, false), PAGE);
        assert_eq!(serve(&mut stats, 2048, false), PAGE);
        stats.trimmed_on_streams(0);
        assert_eq!(stats.reserved_on_streams(), PAGE);
        stats.freed(3072, 3072);
        assert_eq!(stats.reserved_on_streams(), PAGE);
        stats.trimmed_on_streams(0);
        assert_eq!(stats.reserved_on_streams(), 0);
        assert_eq!(stats.peak_reserved_on_streams(), PAGE);
    }
}
