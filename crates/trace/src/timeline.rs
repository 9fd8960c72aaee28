//! Course of memory over the whole run, in fixed space: least and greatest values by stretch of
//! time.
//!
//! The part is an array of words. Time is divided into [`BUCKETS`] buckets of 2^shift ticks. When
//! the run outgrows them, pairs are merged, and each bucket is twice as wide. The words of a bucket
//! hold the greatest value and the complement of the least one. Both only grow, zero means that
//! there is no value, and applying the same event twice changes nothing.
//!
//! The rest is kept twice and switched:
//!
//! - the sums;
//! - the ticks up to which they account for the events;
//! - the array of buckets, when it is merged.
//!
//! A kill at any instant leaves a whole state, from which a reader continues with the ring.

use std::sync::atomic::Ordering;

use super::effect::Effect;
use super::event::{Event, Layer};
use super::ring::Word;
use super::space::Room;

mod device;
mod of;
mod read;

pub(crate) use device::Current;
use device::{DeviceExtremes, clamped};

pub use read::{DeviceTimeline, Span, Timeline};

/// Number of buckets of each series.
pub(crate) const BUCKETS: usize = 1024;
/// Number of devices with series of their own.
pub(crate) const DEVICES: usize = 8;
/// Width of a bucket at first: 2^20 ticks, about a third of a millisecond.
const FIRST_SHIFT: u64 = 20;

/// Series of values over time, bytes. The number is its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Series {
    /// Bytes that the program or a framework asked for.
    Requested = 0,
    /// Bytes handed out, rounded to blocks.
    Allocated = 1,
    /// Bytes reserved from the driver.
    Reserved = 2,
    /// Bytes that a framework reports as allocated.
    Tensors = 3,
    /// Bytes that a framework reports as reserved.
    TensorsReserved = 4,
    /// Bytes in use by all processes, according to the driver.
    Driver = 5,
}

impl Series {
    /// All series, in the order of the file.
    pub const ALL: [Series; 6] = [
        Series::Requested,
        Series::Allocated,
        Series::Reserved,
        Series::Tensors,
        Series::TensorsReserved,
        Series::Driver,
    ];
}

const SERIES: usize = Series::ALL.len();

/// Words of the part, see `docs/trace-format.md`.
pub(crate) mod words {
    use super::{DEVICES, SERIES};
    /// Number of switches of the state; its lowest bit names the copy in force.
    pub const TURN: usize = 0;
    pub const BUCKETS: usize = 1;
    pub const DEVICES_AT: usize = 2;
    pub const SERIES_AT: usize = 3;
    /// Ticks at which the first bucket begins.
    pub const START: usize = 4;
    /// First copy of the state.
    pub const STATE: usize = 8;
    /// Offset within a copy: ticks up to which events are accounted for.
    pub const UPTO: usize = 0;
    pub const SHIFT: usize = 1;
    pub const HALF: usize = 2;
    pub const GAPS: usize = 3;
    pub const UNPLACED: usize = 4;
    /// Offset within a copy: turns of the ring that had been read.
    pub const TURNS: usize = 5;
    /// Offset within a copy of the first device: its head word, then its values.
    pub const FIRST: usize = 8;
    pub const STATE_WORDS: usize = FIRST + DEVICES * (1 + SERIES);
}

const HALF_WORDS: usize = BUCKETS * DEVICES * SERIES * 2;

pub(crate) const BYTES: usize = (words::STATE + 2 * words::STATE_WORDS + 2 * HALF_WORDS) * 8;

/// Bytes at the beginning of the part that are used from the start.
pub(crate) const STATE_BYTES: usize = (words::STATE + 2 * words::STATE_WORDS) * 8;

/// Sums and extremes of a timeline. Its words are passed to each function, as they lie in a
/// mapping.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    start: u64,
    upto: u64,
    shift: u64,
    half: usize,
    turn: u64,
    /// Index of the open bucket.
    bucket: usize,
    /// Ticks between which the sums were taken from the live table, the totals and the pools. The
    /// sums have all events before the first ticks, perhaps some up to the second, and none after.
    given: Option<(u64, u64)>,
    /// Turns of the ring up to which it was read.
    pub(crate) turns: u64,
    pub(crate) gaps: u64,
    /// Events of a device without series, or of no device.
    unplaced: u64,
    /// True if the sums may be wrong until the next [`Ledger::resync`].
    pub(crate) is_unsure: bool,
    devices: Vec<DeviceExtremes>,
    room: Room,
}

impl Ledger {
    /// Begins a timeline in words that are all zero.
    pub(crate) fn create<W: Word>(at: &[W], start: u64) -> Ledger {
        for (index, value) in [
            (words::BUCKETS, BUCKETS as u64),
            (words::DEVICES_AT, DEVICES as u64),
            (words::SERIES_AT, SERIES as u64),
            (words::START, start),
        ] {
            put(at, index, value);
        }
        let mut ledger = Ledger {
            start,
            upto: start,
            shift: FIRST_SHIFT,
            half: 0,
            turn: 0,
            bucket: 0,
            given: None,
            turns: 0,
            gaps: 0,
            unplaced: 0,
            is_unsure: false,
            devices: Vec::new(),
            room: Room::default(),
        };
        ledger.commit(at);
        ledger
    }

    /// Places the timeline in a file that grows. Buckets without space are left out.
    pub(crate) fn within(self, room: Room) -> Ledger {
        Ledger { room, ..self }
    }

    /// Adds an event to the sums.
    pub(crate) fn feed<W: Word>(&mut self, at: &[W], ticks: u64, event: &Event) {
        let given = self.given.filter(|(_, to)| ticks <= *to);
        let effect = match Effect::of(event) {
            Effect::Allocated(bytes) | Effect::Freed(bytes) if bytes.layer != Layer::Device => {
                Effect::None
            }
            effect => effect,
        };
        let is_sum = !matches!(effect, Effect::None | Effect::InUse(_));
        let is_value = matches!(effect, Effect::InUse(_)) || event.framework().is_some();
        if is_sum && let Some((from, _)) = given {
            self.is_unsure |= ticks > from;
        }
        // For every event: a reader that continues from these sums begins with the bucket of the
        // last event.
        self.advance(at, ticks);
        if !(is_value || is_sum && given.is_none()) {
            return;
        }
        let Some(device) = self.device(event.device) else {
            self.unplaced = self.unplaced.saturating_add(1);
            return;
        };
        match effect {
            Effect::None => {}
            Effect::Allocated(bytes) => device.block(bytes, 1),
            Effect::Freed(bytes) => device.block(bytes, -1),
            Effect::Reserved(bytes) => device.add(Series::Reserved, bytes, 1),
            Effect::Released(bytes) => device.add(Series::Reserved, bytes, -1),
            Effect::ContextGone {
                allocated,
                reserved,
            } => {
                device.drop_context(allocated, reserved);
                // The event does not tell the requested bytes of the context's blocks.
                self.is_unsure |= allocated > 0;
            }
            Effect::InUse(bytes) => device.set(Series::Driver, clamped(bytes)),
        }
        if let (Some([allocated, reserved]), Some(device)) =
            (event.framework(), self.device(event.device))
        {
            device.set(Series::Tensors, clamped(allocated));
            device.set(Series::TensorsReserved, clamped(reserved));
        }
    }

    /// Notes that events are missing: the sums are wrong until [`Ledger::resync`].
    pub(crate) fn gap(&mut self) {
        self.gaps += 1;
        self.is_unsure = true;
    }

    /// Sets the sums to values that were looked up between these ticks. Events recorded before the
    /// first ticks must be in them. If an event in between follows, the sums are unsure again.
    /// Devices without a value stay unchanged.
    pub(crate) fn resync<W: Word>(&mut self, at: &[W], (from, to): (u64, u64), sums: &[Current]) {
        self.advance(at, to);
        let mut merged: Vec<Current> = Vec::new();
        for sum in sums {
            let is_known = self.devices.iter().any(|one| one.ordinal == sum.device);
            if !is_known && sum.is_empty() {
                continue;
            }
            // A sum of no device may belong to the only one.
            let Some(device) = self.device(sum.device) else {
                continue;
            };
            let ordinal = device.ordinal;
            match merged.iter_mut().find(|one| one.device == ordinal) {
                Some(one) => one.add(*sum),
                None => merged.push(Current {
                    device: ordinal,
                    ..*sum
                }),
            }
        }
        for sum in &merged {
            if let Some(device) = self.device(sum.device) {
                device.set(Series::Requested, clamped(sum.requested));
                device.set(Series::Allocated, clamped(sum.allocated));
                if let Some(reserved) = sum.reserved {
                    device.set(Series::Reserved, clamped(reserved));
                }
            }
        }
        self.given = Some((from, to));
        self.is_unsure = merged.iter().any(|sum| sum.reserved.is_none());
        self.commit(at);
    }

    /// Writes the open bucket and the state, so that everything fed so far survives the process.
    pub(crate) fn commit<W: Word>(&mut self, at: &[W]) {
        self.write_bucket(at);
        let turn = self.turn.wrapping_add(1);
        let state = words::STATE + (turn & 1) as usize * words::STATE_WORDS;
        for (index, value) in [
            (words::UPTO, self.upto),
            (words::SHIFT, self.shift),
            (words::HALF, self.half as u64),
            (words::GAPS, self.gaps),
            (words::UNPLACED, self.unplaced),
            (words::TURNS, self.turns),
        ] {
            put(at, state + index, value);
        }
        for (index, device) in self.devices.iter().enumerate() {
            let head = state + words::FIRST + index * (1 + SERIES);
            let known = u64::from(device.known) << 16;
            put(at, head, known | (u64::from(device.ordinal) + 1));
            for (series, value) in device.now.iter().enumerate() {
                put(at, head + 1 + series, *value as u64);
            }
        }
        if let Some(word) = at.get(words::TURN) {
            // Release: a reader that sees the turn sees the copy that it names, and the buckets.
            word.store(turn, Ordering::Release);
        }
        self.turn = turn;
    }

    /// Advances to the bucket of these ticks, if it is a later one.
    fn advance<W: Word>(&mut self, at: &[W], ticks: u64) {
        self.upto = self.upto.max(ticks);
        let passed = self.upto.saturating_sub(self.start);
        while passed >> self.shift >= BUCKETS as u64 {
            self.merge(at);
        }
        let bucket = (passed >> self.shift) as usize;
        while self.bucket < bucket {
            self.write_bucket(at);
            self.bucket += 1;
            self.devices.iter_mut().for_each(DeviceExtremes::begin);
        }
    }

    /// Makes each bucket twice as wide, in the half that is not in force.
    fn merge<W: Word>(&mut self, at: &[W]) {
        self.write_bucket(at);
        let (from, to) = (half_at(self.half), half_at(self.half ^ 1));
        let each = DEVICES * SERIES * 2;
        let is_kept = self.room.has(to * 8, HALF_WORDS / 2 * 8);
        self.gaps += u64::from(!is_kept);
        for index in (0..HALF_WORDS).take_while(|_| is_kept) {
            let (bucket, word) = (index / each, index % each);
            let first = from + bucket * 2 * each + word;
            let value = if bucket < BUCKETS / 2 {
                get(at, first).max(get(at, first + each))
            } else {
                0
            };
            // Only the first part of the half that stays empty has space for sure.
            if bucket < BUCKETS / 2 || get(at, to + index) != value {
                put(at, to + index, value);
            }
        }
        self.half ^= 1;
        self.shift += 1;
        self.bucket /= 2;
        self.switch(at);
    }

    /// Switches to a state with the new half and width, otherwise unchanged: the sums fed since the
    /// last commit are not yet complete.
    fn switch<W: Word>(&mut self, at: &[W]) {
        let turn = self.turn.wrapping_add(1);
        let copy = |turn: u64| words::STATE + (turn & 1) as usize * words::STATE_WORDS;
        for index in 0..words::STATE_WORDS {
            put(at, copy(turn) + index, get(at, copy(self.turn) + index));
        }
        put(at, copy(turn) + words::SHIFT, self.shift);
        put(at, copy(turn) + words::HALF, self.half as u64);
        if let Some(word) = at.get(words::TURN) {
            // Release: a reader that sees the turn sees the half that it names.
            word.store(turn, Ordering::Release);
        }
        self.turn = turn;
    }

    /// Writes the extremes of the open bucket, which only widen.
    fn write_bucket<W: Word>(&self, at: &[W]) {
        let first = half_at(self.half) + self.bucket * DEVICES * SERIES * 2;
        if self.devices.is_empty() || !self.room.has(first * 8, DEVICES * SERIES * 2 * 8) {
            return;
        }
        for (device, values) in self.devices.iter().enumerate() {
            for (series, (least, most)) in values.extremes.iter().enumerate() {
                let index = first + (device * SERIES + series) * 2;
                put(at, index, get(at, index).max(*least));
                put(at, index + 1, get(at, index + 1).max(*most));
            }
        }
    }

    /// Returns the values of a device. If the event names no device, these are the values of the
    /// only one.
    fn device(&mut self, ordinal: u8) -> Option<&mut DeviceExtremes> {
        let known = self.devices.iter().position(|one| one.ordinal == ordinal);
        let index = match known {
            Some(index) => index,
            None if ordinal == Event::NO_DEVICE => Some(0).filter(|_| self.devices.len() == 1)?,
            None if self.devices.len() < DEVICES => {
                self.devices.push(DeviceExtremes {
                    ordinal,
                    ..DeviceExtremes::default()
                });
                let index = self.devices.len() - 1;
                let device = self.devices.get_mut(index)?;
                for series in [Series::Requested, Series::Allocated, Series::Reserved] {
                    device.set(series, 0);
                }
                index
            }
            None => return None,
        };
        self.devices.get_mut(index)
    }
}

const fn half_at(half: usize) -> usize {
    words::STATE + 2 * words::STATE_WORDS + (half & 1) * HALF_WORDS
}

fn get<W: Word>(at: &[W], index: usize) -> u64 {
    at.get(index).map_or(0, |word| word.load(Ordering::Relaxed))
}

fn put<W: Word>(at: &[W], index: usize, value: u64) {
    if let Some(word) = at.get(index) {
        word.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
