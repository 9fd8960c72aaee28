//! One stream-ordered pool: its chunks and the room for blocks in them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::ranges::Ranges;
use crate::state::now;
use crate::timeline::Point;

/// The free that a range of free memory comes from.
#[derive(Clone, Debug)]
pub struct Trace {
    /// First address after the range.
    pub end: u64,
    /// Stream on which it was freed.
    pub stream: u64,
    /// Point of the free in that stream's work.
    pub point: Point,
}

pub struct Pool {
    /// Ordinal of its device, or -1 for host memory.
    pub device: i32,
    /// True if the driver made it.
    pub is_default: bool,
    /// Handle types that it can be exported as.
    pub handles: u32,
    /// Access of other devices: 0 none, 1 read, 3 read and write.
    pub access: HashMap<i32, u32>,
    /// Values of the three `REUSE_*` attributes, by number less 1.
    pub reuse: [i32; 3],
    /// Bytes kept at a synchronisation.
    pub threshold: u64,
    /// Bytes held from the device: now, and at most.
    pub reserved: [u64; 2],
    /// Bytes handed out: now, and at most.
    pub used: [u64; 2],
    /// Limit of the bytes held; 0 for no limit.
    pub max_size: u64,
    /// Number of blocks handed out.
    pub live: u64,
    /// True if the program has destroyed it. It lives until its last block is freed.
    pub is_destroyed: bool,
    /// Its chunks, base to size in bytes.
    pub chunks: BTreeMap<u64, u64>,
    pub free: Ranges,
    /// Frees that ranges of free memory come from, by start of the range.
    pub traces: BTreeMap<u64, Trace>,
}

impl Pool {
    /// Makes a pool without memory.
    pub fn new(device: i32, is_default: bool, handles: u32, max_size: u64) -> Pool {
        Pool {
            device,
            is_default,
            handles,
            access: HashMap::new(),
            reuse: [1; 3],
            threshold: 0,
            reserved: [0; 2],
            used: [0; 2],
            max_size,
            live: 0,
            is_destroyed: false,
            chunks: BTreeMap::new(),
            free: Ranges::default(),
            traces: BTreeMap::new(),
        }
    }

    fn traces_in(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &Trace)> {
        let before = self.traces.range(..range.start).next_back();
        let reaching = before.filter(|(_, trace)| trace.end > range.start);
        let within = self.traces.range(range);
        let all = reaching.into_iter().chain(within);
        all.map(|(start, trace)| (*start, trace))
    }

    /// Finds free memory of this size. With `patient`, a free of another stream need not be reached
    /// yet.
    pub fn find(
        &self,
        size: u64,
        stream: u64,
        patient: bool,
        is_ordered: impl Fn(&Point) -> bool,
    ) -> Option<u64> {
        let now = now();
        let (follows_events, takes_completed) = (self.reuse[0] != 0, self.reuse[1] != 0);
        let is_usable = |trace: &Trace| {
            patient
                || trace.stream == stream
                || takes_completed && trace.point.finish.is_past(now)
                || follows_events && is_ordered(&trace.point)
        };
        self.free.at_least(size).find_map(|(start, length)| {
            let end = start + length;
            let mut at = start;
            for (begins, trace) in self.traces_in(start..end) {
                if at + size <= begins {
                    break;
                }
                if !is_usable(trace) {
                    at = trace.end;
                }
            }
            (at + size <= end).then_some(at)
        })
    }

    /// Takes a range and returns the frees that its use must come after.
    pub fn take(&mut self, range: &Range<u64>) -> Vec<Trace> {
        self.free.take_at(range.start, range.end - range.start);
        let mut taken = Vec::new();
        let mut traces = Vec::new();
        traces.extend(self.traces_in(range.clone()).map(|(at, t)| (at, t.clone())));
        for (start, trace) in traces {
            self.traces.remove(&start);
            if start < range.start {
                self.traces.insert(
                    start,
                    Trace {
                        end: range.start,
                        ..trace.clone()
                    },
                );
            }
            if trace.end > range.end {
                self.traces.insert(range.end, trace.clone());
            }
            taken.push(trace);
        }
        taken
    }

    /// Adds a range to the free memory, with the free that it comes from.
    pub fn give(&mut self, range: Range<u64>, trace: Option<(u64, Point)>) {
        self.free.give(range.start, range.end - range.start);
        if let Some((stream, point)) = trace {
            self.traces.insert(
                range.start,
                Trace {
                    end: range.end,
                    stream,
                    point,
                },
            );
        }
    }

    /// True if a chunk can return to the device: it is free, and was so at the last
    /// synchronisation.
    pub fn is_idle(&self, chunk: &Range<u64>, waited: u64) -> bool {
        self.free.contains(chunk.start, chunk.end - chunk.start)
            && self
                .traces_in(chunk.clone())
                .all(|(_, trace)| trace.point.finish.is_past(waited))
    }
}
