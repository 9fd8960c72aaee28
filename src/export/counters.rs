//! Bytes of memory of each sort, event by event.

use std::collections::BTreeMap;

use super::complete_events::CompleteEvents;
use crate::ledger::{Account, Ledger, Step, Sum};
use gpushim_trace::{Layer, Record};

/// Names of the sums, those of a timeline.
pub(super) const NAMES: [&str; 6] = [
    "requested",
    "allocated",
    "reserved",
    "tensors",
    "tensors reserved",
    "driver used",
];

/// The sums of all devices.
pub(super) struct Counters {
    ledger: Ledger,
    devices: BTreeMap<u8, [i64; NAMES.len()]>,
}

impl Counters {
    /// Counters before the first event: memory that is freed later existed then.
    ///
    /// The story already has such blocks as events. Reserved memory must be counted here: segments
    /// are not in the live table.
    pub(super) fn before(story: &CompleteEvents<'_>) -> Counters {
        let mut account = Account::of_only(story.only);
        for record in story.events() {
            account.feed(&record);
        }
        let devices = account.devices.iter().map(|(device, sums)| {
            let reserved = i64::try_from(sums.reserved.start()).unwrap_or(i64::MAX);
            (*device, [0, 0, reserved, 0, 0, 0])
        });
        Counters {
            ledger: Ledger::new(story.only),
            devices: devices.collect(),
        }
    }

    /// Takes an event into account; says each sum that it changes, by device and place in
    /// [`NAMES`].
    pub(super) fn feed(&mut self, record: &Record, mut say: impl FnMut(u8, usize, u64)) {
        let Counters { ledger, devices } = self;
        let mut changed: Vec<(u8, usize, i64)> = Vec::new();
        ledger.apply(record, &mut |change| {
            change.steps(|device, sum, step, bytes| {
                let Some(place) = place(sum) else { return };
                let level = &mut devices.entry(device).or_default()[place];
                let before = *level;
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                *level = match step {
                    Step::WasThere => before,
                    Step::Rise => before.saturating_add(bytes),
                    Step::Fall | Step::FallUnseen => before.saturating_sub(bytes),
                    Step::Set => bytes,
                };
                if !changed
                    .iter()
                    .any(|(of, at, _)| (*of, *at) == (device, place))
                {
                    changed.push((device, place, before));
                }
            });
        });
        changed.sort_unstable();
        for (device, place, before) in changed {
            let after = devices.get(&device).map_or(0, |levels| levels[place]);
            if after != before {
                say(device, place, u64::try_from(after).unwrap_or(0));
            }
        }
    }
}

/// The place of a sum in [`NAMES`].
fn place(sum: Sum) -> Option<usize> {
    Some(match sum {
        Sum::Live(Layer::Device) => 0,
        Sum::Allocated => 1,
        Sum::Reserved => 2,
        Sum::FrameworkAllocated => 3,
        Sum::FrameworkReserved => 4,
        Sum::InUse => 5,
        Sum::Live(_) => return None,
    })
}
