//! The peak of a run whose first events are lost, from the timeline.

use super::block::Focus;
use gpushim_recording::Recording;
use gpushim_trace::{Layer, Series};

/// Returns the highest sum of a device's requested bytes in a run whose first events are lost, from
/// the timeline. It must be more than `left`, the peak of the other events. Returns `None` for
/// several devices without a chosen one.
pub fn lost_peak(recording: &dyn Recording, focus: Focus, left: u64) -> Option<u64> {
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
    let most = spans.map(|span| span.max).max();
    most.filter(|most| *most > left)
}
