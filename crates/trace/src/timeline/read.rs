//! The timeline of a file: what was written, continued with the events that came after it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{BUCKETS, BYTES, DEVICES, DeviceExtremes, Ledger, SERIES, Series, get, half_at, words};
use crate::clock::Calibration;

/// How memory went over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// By device, in the order in which they were first used.
    pub devices: Vec<DeviceTimeline>,
    /// Ns of a bucket.
    pub width_ns: u64,
    /// How often events were missed; the sums between a gap and what they were then taken anew from are
    /// off.
    pub gaps: u64,
    /// Events that named no device, or one beyond those that are told apart.
    pub unplaced: u64,
    /// Whether it reaches from the first event to the last: as far as the turns of the ring tell, none
    /// after the writer's last words was overwritten, and the file is not cut off within it.
    pub is_complete: bool,
}

/// The series of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTimeline {
    /// Device ordinal.
    pub device: u8,
    series: [Vec<Span>; SERIES],
}

impl DeviceTimeline {
    /// A series, in the order of time, without the stretches before it was first known.
    pub fn get(&self, series: Series) -> &[Span] {
        self.series.get(series as usize).map_or(&[], Vec::as_slice)
    }
}

/// A stretch of time and the extremes of a series in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Ns since the start of the trace.
    pub from_ns: u64,
    /// The end of it, not included.
    pub to_ns: u64,
    /// The least, bytes.
    pub min: u64,
    /// The most, bytes.
    pub max: u64,
}

/// How often a part that changes under our eyes is copied again.
const LOOKS: usize = 20;

impl Ledger {
    /// Words for a timeline of our own.
    pub(crate) fn words() -> Vec<AtomicU64> {
        (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect()
    }

    /// The books as they stand in a file, in memory of our own: its words and what to go on with. Words
    /// beyond the end of a file that is cut off are zero: those buckets have nothing. `None` if there are
    /// no books, or none that make sense.
    pub(crate) fn resume(part: &[AtomicU64]) -> Option<(Vec<AtomicU64>, Ledger)> {
        let part = part.get(..part.len().min(BYTES / 8))?;
        for _ in 0..LOOKS {
            let turn = part.get(words::TURN)?.load(Ordering::Acquire);
            let copy: Vec<u64> = part
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .collect();
            fence(Ordering::Acquire);
            if part.get(words::TURN)?.load(Ordering::Relaxed) == turn {
                let missing = std::iter::repeat_n(0, BYTES / 8 - copy.len());
                let copy = copy.into_iter().chain(missing);
                let copy: Vec<AtomicU64> = copy.map(AtomicU64::new).collect();
                let ledger = Ledger::parse(&copy)?;
                return Some((copy, ledger));
            }
        }
        None
    }

    fn parse(at: &[AtomicU64]) -> Option<Ledger> {
        let is_ours = get(at, words::BUCKETS) == BUCKETS as u64
            && get(at, words::DEVICES_AT) == DEVICES as u64
            && get(at, words::SERIES_AT) == SERIES as u64;
        let turn = get(at, words::TURN);
        let state = words::STATE + (turn & 1) as usize * words::STATE_WORDS;
        let (start, upto) = (get(at, words::START), get(at, state + words::UPTO));
        let (shift, half) = (get(at, state + words::SHIFT), get(at, state + words::HALF));
        let passed = upto.checked_sub(start)?;
        if !is_ours || turn == 0 || shift > 63 || half > 1 || passed >> shift >= BUCKETS as u64 {
            return None;
        }
        let device = |index: usize| {
            let head = state + words::FIRST + index * (1 + SERIES);
            let word = get(at, head);
            let mut device = DeviceExtremes {
                ordinal: (word & 0xffff).checked_sub(1)? as u8,
                known: (word >> 16) as u8,
                now: std::array::from_fn(|series| get(at, head + 1 + series) as i64),
                ..DeviceExtremes::default()
            };
            device.begin();
            Some(device)
        };
        Some(Ledger {
            start,
            upto,
            shift,
            half: half as usize,
            turn,
            bucket: (passed >> shift) as usize,
            given: None,
            turns: get(at, state + words::TURNS),
            gaps: get(at, state + words::GAPS),
            unplaced: get(at, state + words::UNPLACED),
            is_unsure: false,
            devices: (0..DEVICES).map_while(device).collect(),
            room: Default::default(),
        })
    }

    /// Ticks up to which events are accounted for.
    pub(crate) fn upto(&self) -> u64 {
        self.upto
    }

    /// Turns of the ring that were looked at by then.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// What the words say, once nothing more is fed.
    pub(crate) fn timeline(
        &mut self,
        at: &[AtomicU64],
        clock: Calibration,
        is_complete: bool,
    ) -> Timeline {
        self.commit(at);
        let ns = |bucket: usize| {
            let passed = (bucket as u64).saturating_mul(1 << self.shift.min(63));
            clock.ns(self.start.saturating_add(passed))
        };
        let span = &|device: usize, series: usize, bucket: usize| {
            let index = half_at(self.half) + ((bucket * DEVICES + device) * SERIES + series) * 2;
            let (min, max) = (!get(at, index), get(at, index + 1));
            (min <= max).then(|| Span {
                from_ns: ns(bucket),
                to_ns: ns(bucket + 1),
                min,
                max,
            })
        };
        let devices = self.devices.iter().enumerate().map(|(index, device)| {
            let spans = |series: usize| {
                (0..=self.bucket).filter_map(move |bucket| span(index, series, bucket))
            };
            DeviceTimeline {
                device: device.ordinal,
                series: std::array::from_fn(|series| spans(series).collect()),
            }
        });
        Timeline {
            devices: devices.collect(),
            width_ns: ns(1).saturating_sub(ns(0)),
            gaps: self.gaps,
            unplaced: self.unplaced,
            is_complete,
        }
    }
}
