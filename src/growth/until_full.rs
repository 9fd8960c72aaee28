//! The time until memory is full at the rate of growth.

use serde::Serialize;

use super::find::Growth;
use crate::ledger::Focus;
use crate::recording::Recording;
use gpushim_trace::{Layer, Series};

/// Time until memory is full at the rate of growth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UntilFull {
    /// Bytes that are free in the last passes.
    pub bytes: u64,
    /// Iterations until they are not.
    pub iterations: f64,
    /// Ns until then.
    pub ns: f64,
}

impl UntilFull {
    /// Divides the free memory by the growth that was found. Returns `None` if memory
    /// does not grow, or the free memory is unknown.
    pub fn of(recording: &dyn Recording, focus: Focus, growth: &Growth) -> Option<UntilFull> {
        if !growth.is_found() {
            return None;
        }
        let bytes = free_at_last(recording, focus)?;
        let iterations = bytes as f64 / growth.per_iteration;
        Some(UntilFull {
            bytes,
            iterations,
            ns: iterations * growth.iteration_ns,
        })
    }
}

/// Returns the bytes that the fullest device has free in the last passes. They exclude the process's
/// memory, or the driver's figure of used memory if that is more.
///
/// Returns `None` if the focus is no device memory, or no device's size is known.
fn free_at_last(recording: &dyn Recording, focus: Focus) -> Option<u64> {
    if !matches!(focus.layer, Layer::Tensor | Layer::Device) {
        return None;
    }
    let timeline = recording.timeline();
    let devices = timeline
        .devices
        .iter()
        .filter(|device| focus.device.is_none_or(|one| one == device.device));
    let free = devices.filter_map(|device| {
        let total = recording.gpu(device.device)?.bytes;
        let last = |series| device.get(series).last().map(|span| span.max);
        // The driver's figure may be old, and without a pool nothing is reserved. A program that ends
        // frees what it had in its last passes.
        let live = device.get(Series::Requested);
        let late = live.iter().skip(live.len() / 2).map(|span| span.max);
        let known = [last(Series::Driver), last(Series::Reserved), late.max()];
        let used = known.into_iter().flatten().max()?;
        Some(total.saturating_sub(used))
    });
    free.min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::sample::Training;
    use crate::loops::Followed;

    #[test]
    fn pinned_memory_does_not_fill_a_device() {
        let how = Training {
            leak: 1_101_004,
            has_gpu: true,
            ..Training::default()
        };
        let (_dir, trace) = how.record();
        let focus = Focus::of(&trace, None);
        let growth = Growth::of(&Followed::of(&trace, focus, None)).expect("growth");
        let until = UntilFull::of(&trace, focus, &growth).expect("a device");
        assert_eq!(until.bytes, (5 << 30) - (1 << 20));
        let host = Focus {
            layer: Layer::Host,
            ..focus
        };
        assert_eq!(UntilFull::of(&trace, host, &growth), None);
    }
}
