//! What an iteration begins with, in the events of a recording.

use super::By;
use super::marker::RangeName;
use crate::ledger::Focus;
use gpushim_trace::{Event, Kind, Layer};

/// Fewer beginnings are none.
pub(super) const LEAST: u64 = 2;

/// What iterations begin with, as the user set it, found in a recording.
#[derive(Clone, Debug)]
pub struct Given {
    pub(super) by: By,
    pub(super) beginning: Beginning,
    /// The allocations among which it was found.
    pub(super) focus: Focus,
    /// Whether it is certain where each iteration begins. Calls of a function with no other allocation between them may
    /// be one call in which something repeats.
    pub(super) is_certain: bool,
}

/// What an iteration begins with.
#[derive(Clone, Debug)]
pub(super) enum Beginning {
    /// A range of such a name.
    Range(RangeName),
    /// An allocation that is recognised by this.
    Allocation(By),
    /// An allocation for which this many bytes were asked, whatever its stack.
    Size(u64),
}

/// What begins a range: others may announce the same ranges beside it. Of a range that may end on another thread the
/// device tells, too: a snapshot of PyTorch has the ranges of each of them.
pub(super) fn begun_by(event: &Event) -> (u32, u8) {
    match event.kind {
        Kind::RangePush => (event.thread, Event::NO_DEVICE),
        _ => (event.thread, event.device),
    }
}

/// The focus, then all other memory.
pub(super) fn focuses(focus: Focus) -> Vec<Focus> {
    let others = [Layer::Tensor, Layer::Device, Layer::Host, Layer::Managed];
    let others = others.into_iter().filter(|layer| *layer != focus.layer);
    let other = |layer| Focus {
        layer,
        device: None,
    };
    std::iter::once(focus).chain(others.map(other)).collect()
}

/// Whether an event is an allocation that was met.
pub(super) fn is_allocation(event: &Event) -> bool {
    matches!(event.kind, Kind::Alloc | Kind::TensorAlloc) && event.result == 0
}
