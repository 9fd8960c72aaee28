//! Sudden falls of live memory: bytes, time, stacks and cause.

use serde::Serialize;

use super::fall::Drop;
use super::falls::Falls;
use super::gather::Gather;
use crate::ledger::{Block, Focus, Segments, Visitor, walk};
use crate::loops::Iterations;
use crate::recording::Recording;
use gpushim_trace::Record;

/// A fall must be at least 1/`PART` of the peak
const PART: u64 = 10;
/// and at least this many bytes.
const LEAST: u64 = 1 << 20;

/// The smallest fall that is reported of a run with this peak, bytes.
pub(super) fn least(peak: u64) -> u64 {
    (peak / PART).max(LEAST)
}

/// All falls of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Drops {
    /// The peak of live memory, bytes.
    pub peak: u64,
    /// The smallest fall that is reported, bytes.
    pub least: u64,
    /// Those that last first, then the most frequent and the largest.
    pub drops: Vec<Drop>,
}

impl Drops {
    /// Looks for falls of at least a tenth of the peak.
    pub fn of(recording: &dyn Recording, focus: Focus, iterations: Option<&Iterations>) -> Drops {
        let begin = Segments::of(recording, focus);
        let highest = Highest::of(recording, focus, &begin);
        let (unseen, most) = (highest.unseen, (highest.peak(), highest.reserved));
        Drops::below(recording, focus, iterations, (begin, unseen), most)
    }

    /// Those of live memory that last, where its peak is known, bytes.
    pub fn lasting_of(
        recording: &dyn Recording,
        focus: Focus,
        iterations: Option<&Iterations>,
        peak: u64,
    ) -> Drops {
        let begin = Segments::of(recording, focus);
        let unseen = match recording.coverage().lost {
            0 => 0,
            _ => Highest::of(recording, focus, &begin).unseen,
        };
        let (begin, most) = ((begin, unseen), (peak, u64::MAX));
        let mut found = Drops::below(recording, focus, iterations, begin, most);
        found.drops.retain(|drop| drop.largest.lasting.is_some());
        found
    }

    fn below(
        recording: &dyn Recording,
        focus: Focus,
        iterations: Option<&Iterations>,
        (begin, unseen): (Segments, u64),
        (peak, reserved): (u64, u64),
    ) -> Drops {
        let gather = Gather::new(recording, iterations, least(peak));
        let mut falls = Falls::new((begin, unseen), gather, least(reserved));
        walk(recording, focus, &mut [&mut falls]);
        Drops {
            peak,
            least: least(peak),
            drops: falls.finish(),
        }
    }
}

/// The peak of live bytes, and of the bytes that the cache holds.
struct Highest {
    segments: Segments,
    /// Bytes that are live more than those of blocks of before the recording that only their ends tell of.
    now: i128,
    highest: i128,
    /// Bytes of these.
    unseen: u64,
    reserved: u64,
}

impl Highest {
    fn of(recording: &dyn Recording, focus: Focus, begin: &Segments) -> Highest {
        let mut highest = Highest {
            segments: begin.clone(),
            now: 0,
            highest: 0,
            unseen: 0,
            reserved: begin.cached(),
        };
        walk(recording, focus, &mut [&mut highest]);
        highest
    }

    fn peak(&self) -> u64 {
        u64::try_from(self.highest + i128::from(self.unseen)).unwrap_or(u64::MAX)
    }
}

impl Visitor for Highest {
    fn event(&mut self, record: &Record) {
        self.segments.feed(record);
        self.reserved = self.reserved.max(self.segments.cached());
    }

    fn allocated(&mut self, block: &Block) {
        self.now += i128::from(block.size);
        self.highest = self.highest.max(self.now);
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        self.now -= i128::from(block.size);
    }

    fn freed_unseen(&mut self, block: &Block, _: &Record) {
        self.now -= i128::from(block.size);
        self.unseen = self.unseen.saturating_add(block.size);
    }

    fn never_freed(&mut self, rest: &Block) {
        self.unseen = self.unseen.saturating_add(rest.size);
    }
}

#[cfg(test)]
mod tests;
