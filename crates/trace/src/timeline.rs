//! How memory went over the whole run, in fixed space: the least and the most of each stretch of time.
//!
//! The part is an array of words. Time is cut into [`BUCKETS`] buckets of 2^shift ticks; when the run
//! outgrows them, pairs are merged and each is twice as wide. The words of a bucket hold the greatest
//! value and the complement of the least one: both only ever grow, zero means that there is none, and
//! applying the same event twice changes nothing. What is not of that kind, the sums and up to where
//! they account for the events, is kept twice and switched, as is the array of buckets when it is
//! merged: a kill at any instant leaves a whole state, with which a reader continues from the ring.

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

/// Buckets of each series.
pub(crate) const BUCKETS: usize = 1024;
/// Devices that are told apart.
pub(crate) const DEVICES: usize = 8;
/// Width of a bucket at first: 2^20 ticks, about a third of a millisecond.
const FIRST_SHIFT: u64 = 20;

/// What is followed over time, bytes. The number is its place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Series {
    /// Asked for by the program or a framework.
    Requested = 0,
    /// Handed out, rounded to blocks.
    Allocated = 1,
    /// Held from the driver.
    Reserved = 2,
    /// What a framework says that it has handed out.
    Tensors = 3,
    /// What a framework says that it holds.
    TensorsReserved = 4,
    /// Bytes in use by all processes, according to the driver.
    Driver = 5,
}

impl Series {
    /// All of them, in the order of the file.
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
    /// How often the state was switched; its lowest bit names the copy in force.
    pub const TURN: usize = 0;
    pub const BUCKETS: usize = 1;
    pub const DEVICES_AT: usize = 2;
    pub const SERIES_AT: usize = 3;
    /// Ticks at which the first bucket begins.
    pub const START: usize = 4;
    /// The first copy of the state.
    pub const STATE: usize = 8;
    /// Within a copy: ticks up to which events are accounted for.
    pub const UPTO: usize = 0;
    pub const SHIFT: usize = 1;
    pub const HALF: usize = 2;
    pub const GAPS: usize = 3;
    pub const UNPLACED: usize = 4;
    /// Turns of the ring that had been looked at.
    pub const TURNS: usize = 5;
    /// The first device: its head word, then its values.
    pub const FIRST: usize = 8;
    pub const STATE_WORDS: usize = FIRST + DEVICES * (1 + SERIES);
}

const HALF_WORDS: usize = BUCKETS * DEVICES * SERIES * 2;

/// Bytes of the part.
pub(crate) const BYTES: usize = (words::STATE + 2 * words::STATE_WORDS + 2 * HALF_WORDS) * 8;

/// Bytes at the beginning of the part that are in use from the start.
pub(crate) const STATE_BYTES: usize = (words::STATE + 2 * words::STATE_WORDS) * 8;

/// The books of a timeline; its words are passed to each function, as they lie in a mapping.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    start: u64,
    upto: u64,
    shift: u64,
    half: usize,
    turn: u64,
    /// Index of the open bucket.
    bucket: usize,
    /// Sums that were taken from the live table, the totals and the pools between these ticks: events up to the latter
    /// are in them, those after the former perhaps not.
    given: Option<(u64, u64)>,
    /// Turns of the ring up to which it was looked at.
    pub(crate) turns: u64,
    pub(crate) gaps: u64,
    /// Events of a device that is not told apart, or of none.
    unplaced: u64,
    /// The sums may be wrong until the next [`Ledger::resync`].
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

    /// In a file that grows: what of it has no space is left out.
    pub(crate) fn within(self, room: Room) -> Ledger {
        Ledger { room, ..self }
    }

    /// Takes an event into the books.
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
        // For every event: who continues these books begins with the bucket of the last one.
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
                // How much of it was asked for, the event does not say.
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

    /// Events are missing: the sums are wrong from here until [`Ledger::resync`].
    pub(crate) fn gap(&mut self) {
        self.gaps += 1;
        self.is_unsure = true;
    }

    /// Takes the sums from who knows them and looked them up between these moments, the first early enough
    /// that what was recorded before it is surely in them. Should events turn up from in between, the sums
    /// are unsure again. Devices that are not named stay as they are.
    pub(crate) fn resync<W: Word>(&mut self, at: &[W], (from, to): (u64, u64), sums: &[Current]) {
        self.advance(at, to);
        let mut merged: Vec<Current> = Vec::new();
        for sum in sums {
            let is_known = self.devices.iter().any(|one| one.ordinal == sum.device);
            if !is_known && sum.is_empty() {
                continue;
            }
            // What is of no device may be of the only one.
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

    /// Writes the open bucket and the state: what was fed so far survives the process.
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

    /// Moves on to the bucket of these ticks, if that is a later one.
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
            // Of the half that stays empty only the first part has space for sure.
            if bucket < BUCKETS / 2 || get(at, to + index) != value {
                put(at, to + index, value);
            }
        }
        self.half ^= 1;
        self.shift += 1;
        self.bucket /= 2;
        self.switch(at);
    }

    /// Has the state in force name the half and the width, and nothing else change: the sums that were
    /// fed since the last commit are not yet whole.
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

    /// Writes what is known of the open bucket; what it held already stays within it.
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

    /// The books of a device; of the only one there is, if the event names none.
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
