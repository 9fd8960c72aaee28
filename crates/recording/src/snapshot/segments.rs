//! The segments of a device over time, from the state at the end and the history.
//!
//! The history has only the last entries, the snapshot only the end. The segments at the beginning
//! are the end with the history undone, from the last entry to the first. An expandable segment may
//! shrink by other stretches than it grew by. So its stretches are cut at each beginning and end of
//! any of them: then each piece is taken and released as a whole, like other segments.

use std::collections::{BTreeMap, BTreeSet};

use crate::snapshot::entries::{Action, DeviceHistory, TraceEntry};

#[derive(Debug)]
pub(super) struct Segments {
    /// Beginnings and ends of all stretches of expandable segments.
    cuts: BTreeSet<u64>,
    /// Number of pieces that may still be made: a hostile history can have any number of nested
    /// stretches.
    room: usize,
    /// Reserved memory: address and bytes.
    held: BTreeMap<u64, u64>,
}

impl Segments {
    /// Returns the segments before the first entry.
    pub(super) fn before(device: &DeviceHistory) -> Segments {
        let mapped = device.entries.iter().filter(|entry| entry.is_mapping);
        let stretches = mapped.map(|entry| (entry.address, entry.size));
        let at_end = device
            .segments
            .iter()
            .filter(|(.., kind)| kind.is_expandable);
        let at_end = at_end.map(|(at, size, _)| (*at, *size));
        let all = stretches.chain(at_end);
        let mut segments = Segments {
            cuts: all
                .flat_map(|(at, size)| [at, at.saturating_add(size)])
                .collect(),
            room: 4 * device.entries.len() + 4 * device.segments.len() + (1 << 16),
            held: BTreeMap::new(),
        };
        for (at, size, _) in &device.segments {
            let pieces = segments.pieces(*at, *size);
            segments.held.extend(pieces);
        }
        for entry in device
            .entries
            .iter()
            .rev()
            .filter(|entry| is_segment(entry))
        {
            segments.apply(entry, entry.action == Action::SegmentFree);
        }
        segments
    }

    /// Returns the current segments: address and bytes, in the order of addresses.
    pub(super) fn held(&self) -> impl Iterator<Item = (u64, u64)> {
        self.held.iter().map(|(at, size)| (*at, *size))
    }

    /// Takes or releases the memory that an entry names. Returns the pieces that changed.
    pub(super) fn apply(&mut self, entry: &TraceEntry, takes: bool) -> Vec<(u64, u64)> {
        let mut pieces = if entry.is_mapping {
            self.pieces(entry.address, entry.size)
        } else {
            vec![(entry.address, entry.size)]
        };
        pieces.retain(|(at, size)| {
            if takes {
                self.held.insert(*at, *size).is_none()
            } else {
                self.held.remove(at).is_some()
            }
        });
        pieces
    }

    fn pieces(&mut self, at: u64, size: u64) -> Vec<(u64, u64)> {
        let end = at.saturating_add(size);
        let mut pieces = Vec::new();
        let mut from = at;
        let after = at.saturating_add(1);
        if after < end {
            for cut in self.cuts.range(after..end) {
                if self.room == 0 {
                    break;
                }
                self.room -= 1;
                pieces.push((from, cut - from));
                from = *cut;
            }
        }
        if end > from {
            pieces.push((from, end - from));
        }
        pieces
    }
}

fn is_segment(entry: &TraceEntry) -> bool {
    matches!(entry.action, Action::SegmentAlloc | Action::SegmentFree)
}
