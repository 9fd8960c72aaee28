//! How much memory there is of each sort, event by event.

use std::collections::BTreeMap;

use super::complete_events::CompleteEvents;
use gpushim_trace::{Event, Kind, Layer, flags};

/// Names of the levels, those of a timeline.
pub(super) const NAMES: [&str; 6] = [
    "requested",
    "allocated",
    "reserved",
    "tensors",
    "tensors reserved",
    "driver used",
];

/// The levels of all devices.
#[derive(Default)]
pub(super) struct Counters {
    devices: BTreeMap<u8, [i64; 6]>,
}

impl Counters {
    /// As they must have been before the first event: what is given back later was there. Only of what is
    /// reserved this is not known already: no segment has a place in the live table.
    pub(super) fn before(story: &CompleteEvents<'_>) -> Counters {
        let mut levels = Counters::default();
        let mut least = BTreeMap::<u8, i64>::new();
        for record in story.events() {
            levels.feed(&record.event, |_, _, _| {});
            if let Some([_, _, reserved, ..]) = levels.devices.get(&record.event.device) {
                let least = least.entry(record.event.device).or_default();
                *least = (*least).min(*reserved);
            }
        }
        let begun = |(device, least): (u8, i64)| (device, [0, 0, least.saturating_neg(), 0, 0, 0]);
        Counters {
            devices: least.into_iter().map(begun).collect(),
        }
    }

    /// Takes an event into account; says each level that it changes, by device and place in [`NAMES`].
    pub(super) fn feed(&mut self, event: &Event, mut say: impl FnMut(u8, usize, u64)) {
        let level = self.devices.entry(event.device).or_default();
        let before = *level;
        let [requested, allocated, reserved, tensors, held, driver] = level;
        let size = clamped(event.size);
        let add = |level: &mut i64, bytes: i64| *level = level.saturating_add(bytes);
        match event.kind {
            Kind::Alloc | Kind::Free
                if event.result == 0 && event.class.layer() == Layer::Device =>
            {
                let sign = if event.kind == Kind::Alloc { 1 } else { -1 };
                let block = clamped(event.cost().block.max(event.size));
                add(requested, sign * size);
                add(allocated, sign * block);
                if event.flags & flags::FORWARDED != 0 {
                    add(reserved, sign * block);
                }
            }
            Kind::Reserve => add(reserved, size),
            Kind::Release => add(reserved, -size),
            Kind::ContextGone => {
                add(requested, -size);
                add(allocated, -size);
                add(reserved, -clamped(event.extra[0]));
            }
            Kind::TensorAlloc | Kind::TensorFree | Kind::TensorOutOfMemory => {
                [*tensors, *held] = event.extra.map(clamped);
            }
            Kind::DeviceMemory => *driver = size,
            _ => {}
        }
        for (place, (before, after)) in before.iter().zip(*level).enumerate() {
            if *before != after {
                say(event.device, place, u64::try_from(after).unwrap_or(0));
            }
        }
    }
}

fn clamped(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
