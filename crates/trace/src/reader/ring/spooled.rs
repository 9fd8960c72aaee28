//! Marks of the events of the ring that are in a spool, too.

use super::{RingView, Run};
use crate::reader::bytes::Bytes;

/// Marks of the ring's events that are in a spool. Its memory is bounded by the part of the ring
/// that the file holds.
#[derive(Debug)]
pub struct Spooled {
    /// Runs of the ring by their slots, and for each chunk the index of its first run.
    runs: Vec<Run>,
    chunks: Vec<u32>,
    /// Marks by index of the slot.
    marks: Vec<bool>,
    marked: u64,
}

impl Spooled {
    /// Returns marks for a ring, none of them set.
    pub fn new(ring: &RingView) -> Spooled {
        let mut runs = ring.runs.clone();
        runs.sort_unstable_by_key(|run| run.first);
        let last = runs.last().map_or(0, |run| run.first + run.length);
        let count = last.div_ceil(ring.each.max(1));
        let first = |chunk: u64| runs.partition_point(|run| run.first < chunk * ring.each) as u32;
        let chunks = if runs.is_empty() {
            Vec::new()
        } else {
            (0..=count).map(first).collect()
        };
        Spooled {
            marks: vec![false; usize::try_from(last).unwrap_or(0)],
            runs,
            chunks,
            marked: 0,
        }
    }

    /// Marks the events of a chunk with these numbers, as far as the ring still holds them.
    pub fn mark(&mut self, chunk: u64, number: u64, length: u64) {
        let Ok(chunk) = usize::try_from(chunk) else {
            return;
        };
        let (Some(from), Some(to)) = (self.chunks.get(chunk), self.chunks.get(chunk + 1)) else {
            return;
        };
        let end = number.saturating_add(length);
        for run in self
            .runs
            .get(*from as usize..*to as usize)
            .unwrap_or_default()
        {
            let both = run.number.max(number)..run.number.saturating_add(run.length).min(end);
            for number in both {
                let slot = run.first + (number - run.number);
                if let Some(mark) = self.marks.get_mut(slot as usize) {
                    self.marked += u64::from(!*mark);
                    *mark = true;
                }
            }
        }
    }

    /// Takes the marked events out of the ring.
    pub fn take_out(self, ring: &mut RingView, bytes: &Bytes) {
        let Some(slots) = ring.slots.filter(|_| self.marked > 0) else {
            return;
        };
        let marked = |slot: u64| self.marks.get(slot as usize) == Some(&true);
        let mut left = Vec::new();
        for run in &self.runs {
            let mut open: Option<Run> = None;
            for slot in run.first..run.first + run.length {
                if marked(slot) {
                    left.extend(open.take());
                } else if let Some(open) = &mut open {
                    open.length += 1;
                } else {
                    let number = run.number + (slot - run.first);
                    let event = slots.read(bytes, slot, number);
                    open = Some(Run {
                        key: event.map_or(0, |(ticks, _)| ticks),
                        first: slot,
                        number,
                        length: 1,
                    });
                }
            }
            left.extend(open);
        }
        left.sort_unstable();
        ring.runs = left;
        ring.readable = ring.readable.saturating_sub(self.marked);
    }
}
