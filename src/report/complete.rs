//! Completes the figures of a wrapped trace from the timeline of the run.

use super::figures::{Gauge, Summary};
use gpushim_trace::{Series, Timeline};

/// Takes peaks from the timeline if the events have lost them, and the reserved bytes at the end.
pub(super) fn complete(summary: &mut Summary, timeline: &Timeline) {
    let last_ns = summary.last_ns;
    for device in &mut summary.devices {
        let mut all = timeline.devices.iter();
        let Some(its) = all.find(|of| Some(of.device) == device.device) else {
            continue;
        };
        let highest = |series| its.get(series).iter().max_by_key(|span| span.max);
        for (series, gauge) in [
            (Series::Requested, &mut device.requested),
            (Series::Allocated, &mut device.allocated),
            (Series::Reserved, &mut device.reserved),
        ] {
            if let Some(span) = highest(series).filter(|span| span.max > gauge.peak) {
                (gauge.peak, gauge.peak_ns) = (span.max, Some(span.from_ns));
            }
        }
        // Segments from before the first event that are still held: at least the minimum of the
        // last stretch.
        let held = its.get(Series::Reserved).last();
        if let Some(span) = held.filter(|span| timeline.is_complete && span.to_ns > last_ns) {
            device.reserved.end = device.reserved.end.max(span.min);
        }
        let last = its.get(Series::Driver).last();
        if let Some((highest, last)) = highest(Series::Driver).zip(last) {
            device.in_use = Some(Gauge {
                peak: highest.max,
                peak_ns: Some(highest.from_ns),
                end: last.max,
            });
        }
    }
}
