//! The figures of the moments at which requests failed.

use std::collections::BTreeMap;
use std::thread;

use rustc_hash::FxHashMap;

use super::figures::Situation;
use super::find::Shortage;
use super::layout;
use super::leak::Leak;
use crate::ledger::{Account, DeviceAccount, Focus, LiveAt, Visitor, walk};
use crate::recording::{Caching, Recording, Segment};
use gpushim_config::Limit;
use gpushim_trace::{Event, Kind, Layer, Record};

/// Sums of a device at a moment, from the events up to it. Each has the bytes from before the first
/// event, as far as these events show.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Bytes held from the driver: now, and before the first event.
    held: [u64; 2],
    /// A framework's own bytes, allocated and reserved.
    framework: Option<[u64; 2]>,
}

impl Sums {
    fn of(device: &DeviceAccount) -> Sums {
        Sums {
            held: [device.reserved.end(), device.reserved.start()],
            framework: device
                .framework
                .as_ref()
                .map(|levels| [levels[0].end(), levels[1].end()]),
        }
    }
}

/// Returns the situations of failed requests, in their order, with the blocks that iterations had
/// left behind at each. Goes through the recording once more.
pub(super) fn situations(
    recording: &dyn Recording,
    shortages: &[Shortage],
    leaks: &[Leak],
) -> Vec<Situation> {
    if shortages.is_empty() {
        return Vec::new();
    }
    let mut account = Account::of_only(None);
    let mut at: Vec<Option<Sums>> = vec![None; shortages.len()];
    let device_of = |account: &Account, device: Option<u8>| {
        let ordinal = device.unwrap_or(Event::NO_DEVICE);
        let mut devices = account.devices.iter();
        devices
            .find(|(of, _)| *of == ordinal)
            .map(|(_, one)| Sums::of(one))
    };
    let mut is_asked_below = false;
    let mut rooms = Vec::new();
    // Both tasks go through all events.
    thread::scope(|scope| {
        if recording.caching().is_none() {
            scope.spawn(|| rooms = layout::rooms(recording, shortages));
        }
        for record in recording.events() {
            for (one, sums) in shortages.iter().zip(&mut at) {
                if sums.is_none() && one.ticket <= record.ticket {
                    *sums = Some(device_of(&account, one.device).unwrap_or_default());
                }
            }
            is_asked_below |= matches!(record.event.kind, Kind::Alloc | Kind::Free);
            account.feed(&record);
        }
    });
    let process = recording.process();
    let variables = &process.variables;
    let limit = variables
        .get("GPUSHIM_LIMIT")
        .and_then(|text| Limit::parse(text));
    let policy = variables.get("GPUSHIM_POLICY").cloned();
    // A lost event could have been the refusal.
    let coverage = recording.coverage();
    let is_whole = coverage.lost == 0 && coverage.torn == 0 && !coverage.wrapped;
    let told = shortages.iter().zip(leaks).zip(at);
    let told = told.map(|((one, leak), sums)| {
        let sums = sums.unwrap_or_default();
        // Memory that later events show to have been there all the time.
        let before = device_of(&account, one.device).map_or(0, |last| last.held[1]);
        let held = sums.held[0].saturating_add(before.saturating_sub(sums.held[1]));
        // The pool's own figure is of the moment, too.
        let held = held.max(one.held.map_or(0, |cache| cache.reserved));
        let framework = sums.framework.filter(|_| !one.by_framework);
        Situation {
            size: one.size,
            by_framework: one.by_framework,
            asked_below: (one.by_framework && is_asked_below && is_whole)
                .then_some(one.refused_below),
            limit: limit.map(|limit| limit.bytes),
            peers: one
                .device
                .and_then(|device| process.peers.get(&device))
                .cloned()
                .unwrap_or_default(),
            policy: policy.clone(),
            free: one.device_free.map(|[free, _]| free).or(one.free_as_told),
            total: one
                .device_free
                .map(|[_, total]| total)
                .or_else(|| Some(recording.gpu(one.device?)?.bytes)),
            held,
            rest: one
                .device
                .and_then(|device| process.rest_of_limit.get(&device).copied())
                .unwrap_or_default(),
            cache: one.held,
            in_framework: framework.map_or(0, |[allocated, reserved]| {
                reserved.saturating_sub(allocated)
            }),
            grows: (leak.kept > 0).then_some([leak.kept, leak.per_iteration]),
            ..Situation::default()
        }
    });
    let mut told: Vec<Situation> = told.collect();
    if let Some(caching) = recording.caching() {
        for (one, situation) in shortages.iter().zip(&mut told) {
            Pieces::of(recording, caching, one).tell(one.stream, situation);
        }
    } else {
        layout::tell(recording, shortages, rooms, &mut told);
    }
    told
}

/// The memory of a framework's cache on a device at a moment, by pool and stream.
#[derive(Default)]
struct Pieces {
    /// Free bytes, and the largest free piece.
    free: FxHashMap<((u64, u64), u64), [u64; 2]>,
    /// Bytes that the program had freed and streams still used.
    waiting: u64,
}

impl Pieces {
    /// Adds up the free pieces between the blocks of each segment.
    fn of(recording: &dyn Recording, caching: &Caching, one: &Shortage) -> Pieces {
        let device = one.device.unwrap_or(Event::NO_DEVICE);
        let mut segments = SegmentsAt {
            ticket: one.ticket,
            device,
            caching,
            by_address: BTreeMap::new(),
            waiting: (caching.waiting.iter())
                .filter(|block| block.device == device && block.until > one.ticket)
                .fold(0, |sum, block| sum.saturating_add(block.bytes)),
        };
        let mut live = LiveAt::new(one.ticket);
        let focus = Focus {
            layer: Layer::Tensor,
            device: one.device,
        };
        walk(recording, focus, &mut [&mut segments, &mut live]);
        let blocks = live.into_blocks();
        let mut blocks: Vec<(u64, u64)> = blocks
            .iter()
            .map(|block| (block.address, block.room))
            .collect();
        blocks.sort_unstable();
        let mut pieces = Pieces {
            waiting: segments.waiting,
            ..Pieces::default()
        };
        let mut blocks = blocks.into_iter().peekable();
        for (address, end, kind) in segments.ranges() {
            let mut at = address;
            let [sum, largest] = pieces.free.entry((kind.pool, kind.stream)).or_default();
            let mut gap = |bytes: u64| {
                *sum = sum.saturating_add(bytes);
                *largest = bytes.max(*largest);
            };
            while let Some((begin, room)) = blocks.next_if(|(begin, _)| *begin < end) {
                gap(begin.saturating_sub(at));
                at = at.max(begin.saturating_add(room)).min(end);
            }
            gap(end.saturating_sub(at));
        }
        pieces
    }

    /// Adds it to the situation of a request on a stream.
    fn tell(self, stream: u64, situation: &mut Situation) {
        let mut largest = None;
        for ((pool, of), [bytes, one]) in self.free {
            let sum = match pool {
                (0, 0) if of == stream => {
                    largest = largest.max(Some(one));
                    continue;
                }
                (0, 0) => &mut situation.on_other_streams,
                _ => &mut situation.in_other_pools,
            };
            *sum = sum.saturating_add(bytes);
        }
        if let Some(cache) = &mut situation.cache {
            (cache.largest_free, cache.waiting) = (largest, self.waiting);
        }
    }
}

/// Finds the segments that are held at a moment.
struct SegmentsAt<'a> {
    ticket: u64,
    device: u8,
    caching: &'a Caching,
    /// Sizes, and the use of each segment, by address.
    by_address: BTreeMap<u64, (u64, Segment)>,
    waiting: u64,
}

impl SegmentsAt<'_> {
    /// Returns the ranges in one piece and for one use: begin, end, use. Expandable ranges were
    /// taken page by page.
    fn ranges(&self) -> Vec<(u64, u64, Segment)> {
        let mut ranges: Vec<(u64, u64, Segment)> = Vec::new();
        for (address, (size, kind)) in &self.by_address {
            let end = address.saturating_add(*size);
            match ranges.last_mut() {
                Some((_, last, of)) if last == address && of == kind && kind.is_expandable => {
                    *last = end;
                }
                _ => ranges.push((*address, end, *kind)),
            }
        }
        ranges
    }

    /// Removes a part of the held memory: of an expandable range, any part can be released.
    fn release(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        let below = self.by_address.range(..end).next_back();
        let Some((begin, (bytes, kind))) = below.map(|(begin, of)| (*begin, *of)) else {
            return;
        };
        let old_end = begin.saturating_add(bytes);
        if old_end <= address {
            return;
        }
        self.by_address.remove(&begin);
        if begin < address {
            self.by_address.insert(begin, (address - begin, kind));
        }
        if old_end > end {
            self.by_address.insert(end, (old_end - end, kind));
        }
        // A release may span several reserved parts.
        if begin > address {
            self.release(address, begin - address);
        }
    }
}

impl Visitor for SegmentsAt<'_> {
    fn event(&mut self, record: &Record) {
        let event = &record.event;
        if record.ticket >= self.ticket || event.device != self.device {
            return;
        }
        match event.kind {
            Kind::Reserve => {
                let kind = self.caching.segments.get(&record.ticket);
                let kind = kind.copied().unwrap_or_default();
                self.by_address.insert(event.address, (event.size, kind));
            }
            Kind::Release => self.release(event.address, event.size),
            Kind::TensorFree => {
                let until = self.caching.completed.get(&record.ticket);
                if until.is_some_and(|until| *until > self.ticket) {
                    self.waiting = self.waiting.saturating_add(event.size);
                }
            }
            _ => {}
        }
    }
}
