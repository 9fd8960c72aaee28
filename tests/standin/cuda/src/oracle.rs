//! History of accesses to memory, to find accesses without an order between them.
//!
//! It holds the last write of each range of bytes and the reads since. An access ordered before
//! everything that the host can submit from now on is forgotten: memory stays bounded. Bytes go by
//! their places (see [`Reach`]): two addresses of the same memory share one history.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::alias::Reach;
use crate::clock::{Clock, Lane};

/// Kind of an item that accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    Kernel,
    Copy,
    Set,
    Host,
    /// A child node of a graph.
    Graph,
    /// An allocation or a free on a stream.
    Memory,
    /// An item without an access.
    Nothing,
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            What::Kernel => "kernel",
            What::Copy => "copy",
            What::Set => "memset",
            What::Host => "host function",
            What::Graph => "graph launch",
            What::Memory => "stream-ordered allocation or free",
            What::Nothing => "nothing",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    pub lane: Lane,
    pub what: What,
    /// Number on its lane, from 1.
    pub seq: u64,
}

impl Item {
    fn is_before(&self, clock: &Clock) -> bool {
        clock.covers(self.lane, self.seq)
    }
}

/// Two items that accessed the same bytes without an order between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Places of the bytes in conflict.
    pub bytes: Range<u64>,
    /// First item in the order of submission.
    pub earlier: Item,
    /// True if the earlier item wrote.
    pub earlier_wrote: bool,
    /// Shift by which the earlier item reached the bytes: [`Reach::shift`].
    pub earlier_shift: u64,
}

/// Access of an item, by addresses that `shift` turns into places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    item: Item,
    shift: u64,
}

/// Accesses to a range of places with one history.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    end: u64,
    write: Option<Access>,
    /// Reads since the write, at most one for each lane.
    reads: Vec<Access>,
}

/// Number of segments below which there is no sweep. It is low in tests, so that they test the
/// sweep, too.
const SWEEP_FROM: usize = if cfg!(test) { 8 } else { 4096 };

#[derive(Debug)]
pub struct Oracle {
    segments: BTreeMap<u64, Segment>,
    sweep_at: usize,
}

impl Default for Oracle {
    fn default() -> Self {
        Oracle {
            segments: BTreeMap::new(),
            sweep_at: SWEEP_FROM,
        }
    }
}

impl Oracle {
    /// Records an access by `item`, whose predecessors `clock` covers. Every later item is ordered
    /// after `host`. Returns the first access that is not ordered before the item.
    pub fn access(
        &mut self,
        reach: impl Into<Reach>,
        writes: bool,
        item: Item,
        clock: &Clock,
        host: &Clock,
    ) -> Option<Conflict> {
        let reach = reach.into();
        let (bytes, shift) = (reach.places(), reach.shift);
        if bytes.is_empty() {
            return None;
        }
        self.split_at(bytes.start);
        self.split_at(bytes.end);
        let mut conflict = None;
        for (start, segment) in self.segments.range(bytes.clone()) {
            let write = segment.write.as_ref().map(|write| (write, true));
            let reads = segment
                .reads
                .iter()
                .filter(|_| writes)
                .map(|read| (read, false));
            let unordered = write
                .into_iter()
                .chain(reads)
                .find(|(other, _)| !other.item.is_before(clock));
            if let Some((earlier, earlier_wrote)) = unordered {
                conflict = Some(Conflict {
                    bytes: *start..segment.end,
                    earlier: earlier.item,
                    earlier_wrote,
                    earlier_shift: earlier.shift,
                });
                break;
            }
        }
        if writes {
            self.write(bytes, Access { item, shift });
        } else {
            self.read(bytes, Access { item, shift }, host);
        }
        if self.segments.len() >= self.sweep_at {
            self.sweep(host);
        }
        conflict
    }

    /// Returns an access to these bytes that the host has not seen complete.
    pub fn pending(&self, bytes: Range<u64>, host: &Clock) -> Option<Item> {
        let first = self.overlapping_from(bytes.start);
        self.segments
            .range(first..bytes.end)
            .filter(|(_, segment)| segment.end > bytes.start)
            .flat_map(|(_, segment)| segment.write.iter().chain(&segment.reads))
            .map(|access| access.item)
            .find(|item| !item.is_before(host))
    }

    /// Forgets all accesses to these bytes: they are new memory, or none any more.
    pub fn forget(&mut self, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        self.split_at(bytes.start);
        self.split_at(bytes.end);
        self.remove(bytes);
    }

    /// Number of segments held, to which memory use is proportional.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    fn overlapping_from(&self, at: u64) -> u64 {
        match self.segments.range(..=at).next_back() {
            Some((start, segment)) if segment.end > at => *start,
            _ => at,
        }
    }

    fn split_at(&mut self, at: u64) {
        let Some((start, segment)) = self.segments.range_mut(..at).next_back() else {
            return;
        };
        if segment.end <= at || *start == at {
            return;
        }
        let tail = segment.clone();
        segment.end = at;
        self.segments.insert(at, tail);
    }

    fn remove(&mut self, bytes: Range<u64>) {
        while let Some((start, _)) = self.segments.range(bytes.clone()).next() {
            let start = *start;
            self.segments.remove(&start);
        }
    }

    fn write(&mut self, bytes: Range<u64>, access: Access) {
        let segment = Segment {
            end: bytes.end,
            write: Some(access),
            reads: Vec::new(),
        };
        // The common case: the same bytes as before.
        if let Some(same) = self.segments.get_mut(&bytes.start)
            && same.end == bytes.end
        {
            *same = segment;
            return;
        }
        self.remove(bytes.clone());
        self.segments.insert(bytes.start, segment);
    }

    fn read(&mut self, bytes: Range<u64>, access: Access, host: &Clock) {
        let mut gaps = Vec::new();
        let mut at = bytes.start;
        for (start, segment) in self.segments.range_mut(bytes.clone()) {
            if *start > at {
                gaps.push(at..*start);
            }
            at = segment.end;
            segment
                .reads
                .retain(|read| read.item.lane != access.item.lane && !read.item.is_before(host));
            segment.reads.push(access);
        }
        if at < bytes.end {
            gaps.push(at..bytes.end);
        }
        for gap in gaps {
            let segment = Segment {
                end: gap.end,
                write: None,
                reads: vec![access],
            };
            self.segments.insert(gap.start, segment);
        }
    }

    /// Forgets accesses ordered before everything to come, and joins equal adjacent segments.
    fn sweep(&mut self, host: &Clock) {
        let mut kept: Vec<(u64, Segment)> = Vec::new();
        for (start, mut segment) in std::mem::take(&mut self.segments) {
            segment.write = segment.write.filter(|write| !write.item.is_before(host));
            segment.reads.retain(|read| !read.item.is_before(host));
            if segment.write.is_none() && segment.reads.is_empty() {
                continue;
            }
            if let Some((_, last)) = kept.last_mut()
                && last.end == start
                && last.write == segment.write
                && last.reads == segment.reads
            {
                last.end = segment.end;
                continue;
            }
            kept.push((start, segment));
        }
        self.segments = kept.into_iter().collect();
        self.sweep_at = (2 * self.segments.len()).max(SWEEP_FROM);
    }
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
