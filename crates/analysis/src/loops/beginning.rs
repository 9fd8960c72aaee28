//! The beginning of an iteration, in the events of a recording.

use super::By;
use super::marker::RangeName;
use crate::ledger::Focus;
use gpushim_trace::{Event, Kind, Layer};

/// Fewest beginnings that count.
pub(super) const LEAST: u64 = 2;

/// The beginning of iterations that the user set, found in a recording.
#[derive(Clone, Debug)]
pub struct Given {
    pub(super) by: By,
    pub(super) beginning: Beginning,
    /// The allocations among which it was found.
    pub(super) focus: Focus,
    /// True if the beginnings are certain. Calls of a function with no other allocation between
    /// them may be one call in which something repeats.
    pub(super) is_certain: bool,
}

/// The mark in the events at which an iteration begins.
#[derive(Clone, Debug)]
pub(super) enum Beginning {
    /// A range that has this name.
    Range(RangeName),
    /// An allocation that is recognised by this.
    Allocation(By),
    /// An allocation of this many requested bytes, with any stack.
    Size(u64),
}

/// Returns the thread and the device that began a range: others may announce equal ranges beside
/// it.
///
/// The device matters for ranges that may end on another thread: a snapshot of PyTorch has the
/// ranges of each device.
pub(super) fn begun_by(event: &Event) -> (u32, u8) {
    match event.kind {
        Kind::RangePush => (event.thread, Event::NO_DEVICE),
        _ => (event.thread, event.device),
    }
}

/// Returns the focus, then all other memory.
pub(super) fn focuses(focus: Focus) -> Vec<Focus> {
    let others = [Layer::Tensor, Layer::Device, Layer::Host, Layer::Managed];
    let others = others.into_iter().filter(|layer| *layer != focus.layer);
    let other = |layer| Focus {
        layer,
        device: None,
    };
    std::iter::once(focus).chain(others.map(other)).collect()
}

/// Returns true if an event is an allocation that succeeded.
pub(super) fn is_allocation(event: &Event) -> bool {
    matches!(event.kind, Kind::Alloc | Kind::TensorAlloc) && event.result == 0
}
