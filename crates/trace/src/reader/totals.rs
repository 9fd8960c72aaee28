//! Totals of a file: the sums of its stripes.

use std::sync::atomic::Ordering;

use super::Trace;
use super::bytes::Bytes;
use super::header::Part;
use crate::event::Layer;
use crate::layout::{PartKind, totals};

/// Sums of all allocations and frees since the trace began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Number of blocks allocated.
    pub allocations: u64,
    /// Bytes requested for the allocated blocks.
    pub allocated: u64,
    /// Number of blocks freed, or dropped with their context.
    pub frees: u64,
    /// Bytes that had been requested for the freed blocks.
    pub freed: u64,
}

impl Sums {
    /// Returns the number of live blocks.
    pub fn live(&self) -> u64 {
        self.allocations.saturating_sub(self.frees)
    }

    /// Returns the requested bytes of live blocks.
    pub fn live_bytes(&self) -> u64 {
        self.allocated.saturating_sub(self.freed)
    }

    fn add(&mut self, other: Sums) {
        // No value of a damaged file must cause a panic.
        self.allocations = self.allocations.wrapping_add(other.allocations);
        self.allocated = self.allocated.wrapping_add(other.allocated);
        self.frees = self.frees.wrapping_add(other.frees);
        self.freed = self.freed.wrapping_add(other.freed);
    }
}

/// Sums of a trace, by layer and device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    rows: [[Sums; totals::DEVICES]; totals::LAYERS],
}

impl Totals {
    /// Returns the sums of a layer, over all devices.
    pub fn layer(&self, layer: Layer) -> Sums {
        let rows = self.rows.get(layer as usize).into_iter().flatten();
        rows.fold(Sums::default(), |mut sums, row| {
            sums.add(*row);
            sums
        })
    }

    /// Returns the sums of a layer on one device, 0 to 7. Any other number stands for all other
    /// devices together, and unknown ones.
    pub fn device(&self, layer: Layer, device: u8) -> Sums {
        let index = usize::from(device).min(totals::DEVICES - 1);
        let row = self
            .rows
            .get(layer as usize)
            .and_then(|rows| rows.get(index));
        row.copied().unwrap_or_default()
    }
}

impl Trace {
    /// Returns the sums; for a running process they may include events that occur during the
    /// reading. `None` if the file has none or they are cut off.
    pub fn totals(&self) -> Option<Totals> {
        read(&self.bytes, self.parts.get(PartKind::Totals)?)
    }
}

/// Largest number of stripes that a reader accepts.
const STRIPES_MAX: u64 = 1 << 16;

fn read(bytes: &Bytes, part: Part) -> Option<Totals> {
    let rows_at = totals::ROWS_AT as u64;
    let words = totals::LAYERS * totals::DEVICES * totals::ROW_BYTES / 8;
    if part.stride < rows_at + words as u64 * 8 {
        return None;
    }
    let mut sums = Totals {
        rows: Default::default(),
    };
    for index in 0..(part.length / part.stride).min(STRIPES_MAX) {
        let at = part.offset.checked_add(index.checked_mul(part.stride)?)?;
        let words = bytes.atomics(at.checked_add(rows_at)?, words)?;
        let rows = sums.rows.iter_mut().flatten();
        for (sum, row) in rows.zip(words.chunks_exact(totals::ROW_BYTES / 8)) {
            if let [allocations, allocated, frees, freed] = row {
                sum.add(Sums {
                    allocations: allocations.load(Ordering::Relaxed),
                    allocated: allocated.load(Ordering::Relaxed),
                    frees: frees.load(Ordering::Relaxed),
                    freed: freed.load(Ordering::Relaxed),
                });
            }
        }
    }
    Some(sums)
}

#[cfg(test)]
mod tests;
