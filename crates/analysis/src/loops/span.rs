//! The part of a run that has allocations.

use crate::repeats::Moment;

/// The allocations of a run, from the first to the last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) first: Option<Moment>,
    pub(super) last: Moment,
    /// The last event of any kind.
    pub(super) end: Moment,
}

impl Span {
    /// Returns the number of events from the first allocation to the last.
    pub(super) fn events(&self) -> u64 {
        let first = self.first.unwrap_or_default();
        self.last.ticket.saturating_sub(first.ticket) + 1
    }

    /// Returns the moment after the last event.
    pub(super) fn after(&self) -> Moment {
        Moment {
            ticket: self.end.ticket.saturating_add(1),
            ns: self.end.ns,
        }
    }
}
