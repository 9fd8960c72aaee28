//! A recording up to an event.

use crate::recording::{Recording, forward};
use gpushim_trace::{Record, Timeline};

/// The events of a recording before one of them; all else is as in the whole.
pub(super) struct Until<'a> {
    pub recording: &'a dyn Recording,
    /// The event.
    pub ticket: u64,
}

impl Recording for Until<'_> {
    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        let end = self.ticket;
        let events = self.recording.events();
        Box::new(events.take_while(move |record| record.ticket < end))
    }

    fn timeline(&self) -> Timeline {
        Timeline::of(self.events())
    }

    forward!(recording: path format wall_ns facts problems coverage live live_bytes text open_ranges frames names stream caching is_one_moment fact);
}
