//! What the timeline tells of the part of a run whose events are lost.

use super::block::Focus;
use crate::recording::Recording;
use gpushim_trace::{Layer, Series};

/// The highest sum of the requested bytes of a device in the whole run, where the events of its beginning are lost and
/// the timeline has it; of several devices, if none is asked for, nothing.
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

/// The highest sum of the run, bytes, if that is more than the peak of the events that are left.
pub fn lost_peak(recording: &dyn Recording, focus: Focus, left: u64) -> Option<u64> {
    peak_of_run(recording, focus).filter(|most| *most > left)
}
