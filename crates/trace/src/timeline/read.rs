//! The timeline of a file: the written one, continued with the events after it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{BUCKETS, BYTES, DEVICES, DeviceExtremes, Ledger, SERIES, Series, get, half_at, words};
use crate::clock::Calibration;

/// Course of memory over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Timelines of the devices, in the order in which they were first used.
    pub devices: Vec<DeviceTimeline>,
    /// Width of each bucket in ns.
    pub width_ns: u64,
    /// Number of times that events were missed. After a gap the sums are wrong until the writer
    /// takes them anew.
    pub gaps: u64,
    /// Number of events without a device, or of a device beyond the ones with series.
    pub unplaced: u64,
    /// True if the timeline reaches from the first event to the last. Two conditions must hold:
    ///
    /// - as far as the turns of the ring tell, no event after the writer's last commit was
    ///   overwritten;
    /// - the file is not cut off within the timeline.
    pub is_complete: bool,
}

/// Timeline of one device, by series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceTimeline {
    /// Ordinal of the device, as in its events.
    pub device: u8,
    series: [Vec<Span>; SERIES],
}

impl DeviceTimeline {
    /// Returns a series in the order of time, without the stretches before its first value.
    pub fn get(&self, series: Series) -> &[Span] {
        self.series.get(series as usize).map_or(&[], Vec::as_slice)
    }
}

/// Stretch of time and the extremes of a series in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Start, ns since the start of the trace.
    pub from_ns: u64,
    /// End, not included, ns since the start of the trace.
    pub to_ns: u64,
    /// Least value in the stretch, bytes.
    pub min: u64,
    /// Greatest value in the stretch, bytes.
    pub max: u64,
}

/// Number of times a part that changes meanwhile is copied.
const LOOKS: usize = 20;

impl Ledger {
    /// Returns words for a timeline in private memory.
    pub(crate) fn words() -> Vec<AtomicU64> {
        (0..BYTES / 8).map(|_| AtomicU64::new(0)).collect()
    }

    /// Copies a timeline of a file into private memory. Returns its words, and the sums to continue
    /// from. Words beyond the end of a cut off file are zero: their buckets are empty. `None` if
    /// there is no timeline, or an invalid one.
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

    /// Returns the ticks up to which events are accounted for.
    pub(crate) fn upto(&self) -> u64 {
        self.upto
    }

    /// Returns the turns of the ring that were read by then.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns the timeline in the words, after the last event was fed.
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
