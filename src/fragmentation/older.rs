//! Memory that was reserved before the recording began, if only its sum is known.

use std::collections::BTreeMap;

use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::{Layer, Series};

/// Reserved bytes by device, from the timeline, if the events of the beginning are lost; `None` if
/// they are not.
#[derive(Clone, Debug, Default)]
pub(super) struct Older(Option<BTreeMap<u8, u64>>);

impl Older {
    /// Takes the figures of a moment, ns since the start, as exactly as the timeline keeps it.
    pub(super) fn of(recording: &dyn Recording, focus: Focus, ns: u64) -> Older {
        if !recording.coverage().wrapped {
            return Older(None);
        }
        let series = match focus.layer {
            Layer::Tensor => Series::TensorsReserved,
            _ => Series::Reserved,
        };
        let timeline = recording.timeline();
        if !timeline.is_complete {
            return Older(Some(BTreeMap::new()));
        }
        let devices = timeline.devices.iter();
        let devices = devices.filter(|one| focus.device.is_none_or(|asked| asked == one.device));
        let reserved = devices.filter_map(|one| {
            let spans = one.get(series);
            // The timeline has no span of a stretch in which nothing changes.
            let begun = spans.partition_point(|span| span.from_ns <= ns);
            let span = spans.get(begun.saturating_sub(1))?;
            Some((one.device, span.max))
        });
        Older(Some(reserved.collect()))
    }

    /// Returns true if nothing is known, or nothing was reserved.
    pub(super) fn is_empty(&self) -> bool {
        let mut all = self.0.iter().flatten();
        all.all(|(_, bytes)| *bytes == 0)
    }

    /// Returns true if the recording has the events of all segments.
    pub(super) fn is_whole(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the sum of reserved bytes by device ordinal.
    pub(super) fn reserved(&self) -> impl Iterator<Item = (u8, u64)> + '_ {
        let all = self.0.iter().flatten();
        all.map(|(device, bytes)| (*device, *bytes))
    }
}
