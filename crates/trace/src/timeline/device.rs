//! One device's values, and their extremes within the open bucket; and its sums as others know them.

use super::{SERIES, Series};
use crate::effect::Bytes;

/// A device's values now, and their extremes within the open bucket.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceExtremes {
    pub ordinal: u8,
    /// Bits of the series that have a value.
    pub known: u8,
    /// Sums may pass below zero where an event comes late.
    pub now: [i64; SERIES],
    /// Complement of the least, and the greatest.
    pub extremes: [(u64, u64); SERIES],
}

impl DeviceExtremes {
    /// A series has this value now.
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

    /// The value of a series, 0 if it has none.
    pub fn get(&self, series: Series) -> i64 {
        self.now.get(series as usize).copied().unwrap_or(0)
    }

    /// Begins a bucket: nothing has changed in it yet.
    pub fn begin(&mut self) {
        for (index, (now, extremes)) in self.now.iter().zip(&mut self.extremes).enumerate() {
            let known = self.known >> index & 1 == 1;
            *extremes = if known { widened((0, 0), *now) } else { (0, 0) };
        }
    }

    /// A block of this many bytes came, or went with the sign −1.
    pub fn block(&mut self, bytes: Bytes, sign: i64) {
        self.add(Series::Requested, bytes.requested, sign);
        self.add(Series::Allocated, bytes.allocated, sign);
        if bytes.reserved > 0 {
            self.add(Series::Reserved, bytes.reserved, sign);
        }
    }

    /// A context's memory is gone: of what was asked for, the share that was handed out from it.
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

/// The sums of a device from a source without gaps: the live table, the totals and the pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Current {
    /// Device ordinal.
    pub device: u8,
    /// Bytes asked for of all live blocks.
    pub requested: u64,
    /// Bytes of all live blocks.
    pub allocated: u64,
    /// Bytes held from the driver, those of forwarded allocations included; `None`: not known now.
    pub reserved: Option<u64>,
}

impl Current {
    /// Whether there is nothing, as far as is known.
    pub fn is_empty(&self) -> bool {
        self.requested == 0 && self.allocated == 0 && self.reserved.unwrap_or(0) == 0
    }

    /// Adds the sums of another.
    pub fn add(&mut self, other: Current) {
        self.requested = self.requested.saturating_add(other.requested);
        self.allocated = self.allocated.saturating_add(other.allocated);
        let both = self.reserved.zip(other.reserved);
        self.reserved = both.map(|(one, other)| one.saturating_add(other));
    }
}

/// The extremes with one more value.
fn widened((least, most): (u64, u64), value: i64) -> (u64, u64) {
    let value = u64::try_from(value).unwrap_or(0);
    (least.max(!value), most.max(value))
}

/// Bytes as a value.
pub fn clamped(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
