//! Figures of the part of a run whose events are lost, from the timeline.

use std::collections::BTreeMap;

use super::Requests;
use gpushim_recording::Recording;
use gpushim_trace::{Layer, Series, Span};

/// Sets the highest reserved bytes of a whole run that lacks its beginning, by device, and the flag
/// that more may have been live before the first request. The first event was at `first_ns`.
pub(super) fn tell(
    recording: &dyn Recording,
    layer: Layer,
    first_ns: u64,
    all: &mut BTreeMap<u8, Requests>,
) {
    if !recording.coverage().wrapped {
        return;
    }
    let timeline = recording.timeline();
    let (live, held) = match layer {
        Layer::Tensor => (Series::Tensors, Series::TensorsReserved),
        _ => (Series::Requested, Series::Reserved),
    };
    let most = |spans: &[Span]| spans.iter().map(|span| span.max).max();
    for its in &timeline.devices {
        let Some(requests) = all.get_mut(&its.device) else {
            continue;
        };
        let (live, held) = (its.get(live), its.get(held));
        let lost = live.partition_point(|span| span.to_ns <= first_ns);
        let (before, left) = live.split_at(lost);
        requests.is_peak_unsure = !timeline.is_complete || most(before) > most(left);
        requests.recorded_reserved = most(held)
            .filter(|_| timeline.is_complete)
            .unwrap_or(0)
            .max(requests.recorded_reserved);
    }
}
