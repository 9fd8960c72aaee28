//! The peak of a run whose first events are lost, from the timeline.

use super::block::Focus;
use gpushim_recording::Recording;
use gpushim_trace::{Layer, Series};

/// Returns the highest sum of a device's requested bytes in the whole run, from the timeline, if
/// the first events are lost. Returns `None` for several devices without a chosen one.
fn peak_of_run(recording: &dyn Recording, focus: Focus) -> Option<u64> {
    if !recording.coverage().wrapped || focus.layer != Layer::Device {
        return None;
    }
    let timeline = recording.timeline();
    let devices = timeline.devices.iter();
    let mut devices = devices.filter(|one| focus.device.is_none_or(|asked| asked == one.device));
    let (Some(device), None) = (devices.next(), devices.next()) else {
        return None;
    };
    let spans = device.get(Series::Requested).iter();
    spans.map(|span| span.max).max()
}

/// Returns the highest sum of the run, bytes, if that is more than the peak of the readable events.
pub fn lost_peak(recording: &dyn Recording, focus: Focus, left: u64) -> Option<u64> {
    peak_of_run(recording, focus).filter(|most| *most > left)
}
