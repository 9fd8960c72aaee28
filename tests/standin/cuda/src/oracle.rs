//! The history of accesses to memory, and the accesses that nothing orders.
//!
//! For each range of bytes: the last write, and the reads since. An access that is ordered before
//! everything the host can submit from now on is forgotten, so that memory stays bounded.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::clock::{Clock, Lane};

/// What touched the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// A kernel.
    Kernel,
    /// A copy.
    Copy,
    /// A memset.
    Set,
    /// A host function.
    Host,
    /// A node of a graph launch.
    Graph,
    /// An allocation or a free on a stream.
    Memory,
    /// An item that touches nothing.
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

/// One item of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The lane.
    pub lane: Lane,
    /// What it was.
    pub what: What,
    /// Its number on the lane, from 1.
    pub seq: u64,
}

impl Item {
    fn is_before(&self, clock: &Clock) -> bool {
        clock.covers(self.lane, self.seq)
    }
}

/// Two items that touched the same bytes with nothing to order them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The bytes.
    pub bytes: Range<u64>,
    /// The earlier one in order of submission.
    pub earlier: Item,
    /// Whether the earlier one wrote.
    pub earlier_wrote: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    end: u64,
    write: Option<Item>,
    /// At most one for each lane.
    reads: Vec<Item>,
}

/// Fewer segments than this are never swept. In tests so few that sweeping is tested, too.
const SWEEP_FROM: usize = if cfg!(test) { 8 } else { 4096 };

/// The history.
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
    /// An access by `item`, whose predecessors `clock` knows; `host` is what every later item is
    /// ordered after. Answers with the first access that is not ordered before it.
    pub fn access(
        &mut self,
        bytes: Range<u64>,
        writes: bool,
        item: Item,
        clock: &Clock,
        host: &Clock,
    ) -> Option<Conflict> {
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
                .find(|(other, _)| !other.is_before(clock));
            if let Some((earlier, earlier_wrote)) = unordered {
                conflict = Some(Conflict {
                    bytes: *start..segment.end,
                    earlier: *earlier,
                    earlier_wrote,
                });
                break;
            }
        }
        if writes {
            self.write(bytes, item);
        } else {
            self.read(bytes, item, host);
        }
        if self.segments.len() >= self.sweep_at {
            self.sweep(host);
        }
        conflict
    }

    /// An access to these bytes that the host has not seen done.
    pub fn pending(&self, bytes: Range<u64>, host: &Clock) -> Option<Item> {
        let first = self.overlapping_from(bytes.start);
        self.segments
            .range(first..bytes.end)
            .filter(|(_, segment)| segment.end > bytes.start)
            .flat_map(|(_, segment)| segment.write.iter().chain(&segment.reads))
            .find(|item| !item.is_before(host))
            .copied()
    }

    /// These bytes are no longer memory, or new memory: nothing that was done to them matters.
    pub fn forget(&mut self, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        self.split_at(bytes.start);
        self.split_at(bytes.end);
        self.remove(bytes);
    }

    /// Number of segments held: what memory use is proportional to.
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

    fn write(&mut self, bytes: Range<u64>, item: Item) {
        let segment = Segment {
            end: bytes.end,
            write: Some(item),
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

    fn read(&mut self, bytes: Range<u64>, item: Item, host: &Clock) {
        let mut gaps = Vec::new();
        let mut at = bytes.start;
        for (start, segment) in self.segments.range_mut(bytes.clone()) {
            if *start > at {
                gaps.push(at..*start);
            }
            at = segment.end;
            segment
                .reads
                .retain(|read| read.lane != item.lane && !read.is_before(host));
            segment.reads.push(item);
        }
        if at < bytes.end {
            gaps.push(at..bytes.end);
        }
        for gap in gaps {
            let segment = Segment {
                end: gap.end,
                write: None,
                reads: vec![item],
            };
            self.segments.insert(gap.start, segment);
        }
    }

    /// Forgets what is ordered before everything to come, and joins equal neighbours.
    fn sweep(&mut self, host: &Clock) {
        let mut kept: Vec<(u64, Segment)> = Vec::new();
        for (start, mut segment) in std::mem::take(&mut self.segments) {
            segment.write = segment.write.filter(|write| !write.is_before(host));
            segment.reads.retain(|read| !read.is_before(host));
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
mod tests {
    use super::*;

    fn item(lane: Lane, seq: u64) -> Item {
        let what = What::Kernel;
        Item { lane, what, seq }
    }

    fn clock(entries: &[(Lane, u64)]) -> Clock {
        let mut clock = Clock::default();
        entries
            .iter()
            .for_each(|(lane, seq)| clock.advance(*lane, *seq));
        clock
    }

    #[test]
    fn unordered_accesses_conflict_when_one_writes() {
        let none = Clock::default();
        for (first_writes, second_writes) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let mut oracle = Oracle::default();
            assert_eq!(
                oracle.access(0..100, first_writes, item(0, 1), &clock(&[(0, 1)]), &none),
                None
            );
            let found = oracle.access(50..60, second_writes, item(1, 1), &clock(&[(1, 1)]), &none);
            assert_eq!(found.is_some(), first_writes || second_writes);
            if let Some(found) = found {
                assert_eq!((found.bytes, found.earlier_wrote), (50..60, first_writes));
            }
        }
    }

    #[test]
    fn ordered_accesses_do_not() {
        let mut oracle = Oracle::default();
        let none = Clock::default();
        oracle.access(0..100, true, item(0, 1), &clock(&[(0, 1)]), &none);
        let after = clock(&[(0, 1), (1, 1)]);
        assert_eq!(oracle.access(0..100, true, item(1, 1), &after, &none), None);
        // And a third that is ordered after the second only must be after the first, too.
        assert!(
            oracle
                .access(0..1, true, item(0, 2), &clock(&[(0, 2)]), &none)
                .is_some()
        );
    }

    #[test]
    fn every_reader_counts() {
        let mut oracle = Oracle::default();
        let none = Clock::default();
        for lane in 0..3 {
            oracle.access(0..100, false, item(lane, 1), &clock(&[(lane, 1)]), &none);
        }
        let missing_one = clock(&[(0, 1), (2, 1), (3, 1)]);
        let found = oracle
            .access(0..100, true, item(3, 1), &missing_one, &none)
            .unwrap();
        assert_eq!(found.earlier, item(1, 1));
    }

    #[test]
    fn neighbours_do_not_touch() {
        let mut oracle = Oracle::default();
        let none = Clock::default();
        oracle.access(0..512, true, item(0, 1), &clock(&[(0, 1)]), &none);
        assert_eq!(
            oracle.access(512..1024, true, item(1, 1), &clock(&[(1, 1)]), &none),
            None
        );
        assert_eq!(
            oracle.access(1024..1024, true, item(1, 2), &clock(&[(1, 2)]), &none),
            None
        );
        assert!(
            oracle
                .access(511..513, false, item(2, 1), &clock(&[(2, 1)]), &none)
                .is_some()
        );
    }

    #[test]
    fn pending_until_the_host_has_seen_it() {
        let mut oracle = Oracle::default();
        oracle.access(
            100..200,
            false,
            item(0, 7),
            &clock(&[(0, 7)]),
            &Clock::default(),
        );
        assert_eq!(
            oracle.pending(150..160, &clock(&[(0, 6)])),
            Some(item(0, 7))
        );
        assert_eq!(oracle.pending(150..160, &clock(&[(0, 7)])), None);
        assert_eq!(oracle.pending(200..300, &Clock::default()), None);
        oracle.forget(140..170);
        assert_eq!(oracle.pending(140..170, &Clock::default()), None);
        assert!(oracle.pending(100..141, &Clock::default()).is_some());
        assert!(oracle.pending(169..171, &Clock::default()).is_some());
    }

    #[test]
    fn what_the_host_has_seen_is_forgotten() {
        let mut oracle = Oracle::default();
        for seq in 1..=100_000u64 {
            let host = clock(&[(0, seq - 1)]);
            oracle.access(
                seq * 16..seq * 16 + 8,
                true,
                item(0, seq),
                &clock(&[(0, seq)]),
                &host,
            );
        }
        assert!(oracle.len() <= SWEEP_FROM);
    }

    /// Against a model that keeps every access to every byte.
    #[test]
    fn agrees_with_the_naive_model() {
        let mut random = 12345u64;
        let mut next = move |below: u64| {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        for _ in 0..200 {
            let mut oracle = Oracle::default();
            let mut naive: Vec<(u64, bool, Item)> = Vec::new();
            let mut clocks = vec![Clock::default(); 4];
            let mut host = Clock::default();
            let mut seqs = [0u64; 4];
            for _ in 0..60 {
                let lane = next(4) as Lane;
                match next(6) {
                    0 => {
                        let other = clocks[next(4) as usize].clone();
                        clocks[lane as usize].join(&other);
                    }
                    1 => {
                        host.join(&clocks[lane as usize]);
                    }
                    _ => {
                        seqs[lane as usize] += 1;
                        let me = item(lane, seqs[lane as usize]);
                        let clock = &mut clocks[lane as usize];
                        clock.join(&host);
                        clock.advance(lane, me.seq);
                        let start = next(20);
                        let bytes = start..start + 1 + next(8);
                        let writes = next(2) == 0;
                        let expected = naive.iter().any(|(byte, wrote, other)| {
                            bytes.contains(byte) && (writes || *wrote) && !other.is_before(clock)
                        });
                        let found = oracle.access(bytes.clone(), writes, me, clock, &host);
                        assert_eq!(found.is_some(), expected);
                        if expected {
                            // After a race the two histories may differ in what they remember.
                            break;
                        }
                        naive.extend(bytes.map(|byte| (byte, writes, me)));
                    }
                }
            }
        }
    }
}
