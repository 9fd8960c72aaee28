//! Sudden falls of what is live: how much, when, what of, and why.

use serde::Serialize;

use super::fall::Drop;
use super::falls::Falls;
use super::gather::Gather;
use crate::iterations::Iterations;
use crate::ledger::{Block, Focus, Segments, Visitor, walk};
use crate::recording::Recording;
use gpushim_trace::Record;

/// A fall by less than one part in so many of the peak is none.
const PART: u64 = 10;
/// Nor is one by less than so many bytes.
const LEAST: u64 = 1 << 20;
/// All falls of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Drops {
    /// The highest that was live, bytes.
    pub peak: u64,
    /// The least fall that counts, bytes.
    pub least: u64,
    /// Those that last first, then the most frequent and the largest.
    pub drops: Vec<Drop>,
}

impl Drops {
    /// Looks for falls of at least a tenth of the peak.
    pub fn of(recording: &dyn Recording, focus: Focus, iterations: Option<&Iterations>) -> Drops {
        let begin = Segments::of(recording, focus);
        let mut highest = Highest {
            segments: begin.clone(),
            now: 0,
            peak: 0,
            reserved: begin.cached(),
        };
        walk(recording, focus, &mut [&mut highest]);
        let least = |peak: u64| (peak / PART).max(LEAST);
        let gather = Gather::new(recording, iterations, least(highest.peak));
        let mut falls = Falls::new(begin, gather, least(highest.reserved));
        walk(recording, focus, &mut [&mut falls]);
        Drops {
            peak: highest.peak,
            least: least(highest.peak),
            drops: falls.finish(),
        }
    }

    /// Those that last: memory falls below where it was before, and never comes back.
    pub fn lasting(&self) -> impl Iterator<Item = &Drop> {
        let all = self.drops.iter();
        all.filter(|drop| drop.largest.lasting.is_some())
    }
}

/// The highest that is live, and held by whoever caches it.
struct Highest {
    segments: Segments,
    now: u64,
    peak: u64,
    reserved: u64,
}

impl Visitor for Highest {
    fn event(&mut self, record: &Record) {
        self.segments.feed(record);
        self.reserved = self.reserved.max(self.segments.cached());
    }

    fn allocated(&mut self, block: &Block) {
        self.now = self.now.saturating_add(block.size);
        self.peak = self.peak.max(self.now);
    }

    fn freed(&mut self, block: &Block, _: &Record) {
        self.now = self.now.saturating_sub(block.size);
    }
}

#[cfg(test)]
mod tests;
