//! Figures of the part of a run whose events are lost, from the timeline.

use super::Requests;
use gpushim_recording::Recording;
use gpushim_trace::{Layer, Series, Span, Timeline};

/// The timeline of a run that lacks its beginning; `None` for a whole run.
pub(super) struct Lost {
    timeline: Option<Timeline>,
    layer: Layer,
    first_ns: u64,
}

impl Lost {
    /// Reads the timeline of a recording whose first event was at this time, ns since the start.
    pub(super) fn of(recording: &dyn Recording, layer: Layer, first_ns: u64) -> Lost {
        let is_wrapped = recording.coverage().wrapped;
        Lost {
            timeline: is_wrapped.then(|| recording.timeline()),
            layer,
            first_ns,
        }
    }

    /// Sets the highest reserved bytes of the whole run, and the flag that more may have been live
    /// before the first request.
    pub(super) fn tell(&self, device: u8, requests: &mut Requests) {
        let devices = self.timeline.iter().flat_map(|timeline| &timeline.devices);
        let Some(its) = devices.into_iter().find(|one| one.device == device) else {
            return;
        };
        let (live, held) = match self.layer {
            Layer::Tensor => (Series::Tensors, Series::TensorsReserved),
            _ => (Series::Requested, Series::Reserved),
        };
        let most = |spans: &mut dyn Iterator<Item = &Span>| spans.map(|span| span.max).max();
        let (live, held) = (its.get(live), its.get(held));
        let lost = live.partition_point(|span| span.to_ns <= self.first_ns);
        let (before, left) = live.split_at(lost);
        let is_known = self.timeline.as_ref().is_some_and(|one| one.is_complete);
        requests.is_peak_unsure = !is_known || most(&mut before.iter()) > most(&mut left.iter());
        requests.recorded_reserved = most(&mut held.iter())
            .filter(|_| is_known)
            .unwrap_or(0)
            .max(requests.recorded_reserved);
    }
}
