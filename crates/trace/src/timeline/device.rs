//! Values of one device and their extremes within the open bucket, and its sums from other sources.

use super::{SERIES, Series};
use crate::effect::Bytes;

/// Current values of a device, and their extremes within the open bucket.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceExtremes {
    pub ordinal: u8,
    /// Bits of the series that have a value.
    pub known: u8,
    /// Current values; a sum may be below zero if an event is late.
    pub now: [i64; SERIES],
    /// Complement of the least value, and the greatest value.
    pub extremes: [(u64, u64); SERIES],
}

impl DeviceExtremes {
    /// Sets the value of a series.
    pub fn set(&mut self, series: Series, value: i64) {
        let index = series as usize;
        if let (Some(now), Some(extremes)) = (self.now.get_mut(index), self.extremes.get_mut(index))
        {
            *now = value;
            *extremes = widened(*extremes, value);
            self.known |= 1 << index;
        }
    }

    /// Adds `sign` × `bytes` to a series; `sign` is 1 or −1.
    pub fn add(&mut self, series: Series, bytes: u64, sign: i64) {
        let now = self.now.get(series as usize).copied().unwrap_or(0);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.set(series, now.saturating_add(bytes.saturating_mul(sign)));
    }

    /// Returns the value of a series, 0 if it has none.
    pub fn get(&self, series: Series) -> i64 {
        self.now.get(series as usize).copied().unwrap_or(0)
    }

    /// Begins a bucket, with the current values as its extremes.
    pub fn begin(&mut self) {
        for (index, (now, extremes)) in self.now.iter().zip(&mut self.extremes).enumerate() {
            let known = self.known >> index & 1 == 1;
            *extremes = if known { widened((0, 0), *now) } else { (0, 0) };
        }
    }

    /// Adds a block of this many bytes, or subtracts it with the sign −1.
    pub fn block(&mut self, bytes: Bytes, sign: i64) {
        self.add(Series::Requested, bytes.requested, sign);
        self.add(Series::Allocated, bytes.allocated, sign);
        if bytes.reserved > 0 {
            self.add(Series::Reserved, bytes.reserved, sign);
        }
    }

    /// Subtracts the memory of a context. The requested bytes shrink in proportion to the allocated
    /// ones.
    pub fn drop_context(&mut self, gone: u64, reserved: u64) {
        let (allocated, gone) = (self.get(Series::Allocated), clamped(gone));
        let requested = i128::from(self.get(Series::Requested));
        let left = i128::from(allocated.saturating_sub(gone).max(0));
        let requested = if allocated > 0 {
            requested * left / i128::from(allocated)
        } else {
            0
        };
        self.set(Series::Allocated, left as i64);
        self.set(Series::Requested, requested as i64);
        self.add(Series::Reserved, reserved, -1);
    }
}

/// Sums of a device from a source without gaps: the live table, the totals and the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// Device ordinal, or [`Event::NO_DEVICE`](crate::Event::NO_DEVICE).
    pub device: u8,
    /// Requested bytes of all live blocks.
    pub requested: u64,
    /// Bytes of all live blocks, rounded.
    pub allocated: u64,
    /// Bytes reserved from the driver, with the ones of forwarded allocations. `None` if unknown
    /// now.
    pub reserved: Option<u64>,
}

impl Current {
    /// True if all known sums are zero.
    pub fn is_empty(&self) -> bool {
        self.requested == 0 && self.allocated == 0 && self.reserved.unwrap_or(0) == 0
    }

    /// Adds the sums of another source.
    pub fn add(&mut self, other: Current) {
        self.requested = self.requested.saturating_add(other.requested);
        self.allocated = self.allocated.saturating_add(other.allocated);
        let both = self.reserved.zip(other.reserved);
        self.reserved = both.map(|(one, other)| one.saturating_add(other));
    }
}

/// Returns the extremes, widened by one more value.
fn widened((least, most): (u64, u64), value: i64) -> (u64, u64) {
    let value = u64::try_from(value).unwrap_or(0);
    (least.max(!value), most.max(value))
}

/// Returns a number of bytes as a value, at most `i64::MAX`.
pub fn clamped(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
