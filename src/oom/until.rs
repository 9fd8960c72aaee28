//! A recording up to an event, optionally without some of its blocks.

use rustc_hash::FxHashSet;

use crate::recording::{Decorator, Recording};
use gpushim_trace::{Record, Timeline};

/// The events of a recording before one of them; all else is as in the whole.
pub(super) struct Until<'a> {
    pub recording: &'a dyn Recording,
    /// Place of the event among all.
    pub ticket: u64,
    /// The places of allocations that are left out; their blocks are live at the event.
    pub without: Option<&'a FxHashSet<u64>>,
}

impl Decorator for Until<'_> {
    fn inner(&self) -> &dyn Recording {
        self.recording
    }

    fn events(&self) -> Box<dyn Iterator<Item = Record> + Send + '_> {
        let end = self.ticket;
        let events = self.recording.events();
        let events = events.take_while(move |record| record.ticket < end);
        match self.without {
            None => Box::new(events),
            Some(without) => Box::new(events.filter(|record| !without.contains(&record.ticket))),
        }
    }

    fn timeline(&self) -> Timeline {
        Timeline::of(Decorator::events(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::open;

    #[test]
    fn it_ends_before_the_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.csv");
        let lines = "op,ptr,size,stream,thread,time_ns\nalloc,0x1000,512,0,1,5\nalloc,0x2000,512,0,1,6\nfree,0x1000,512,0,1,7\n";
        std::fs::write(&path, lines).unwrap();
        let recording = &*open(&path).unwrap();
        for ticket in 0..4 {
            let until = Until {
                recording,
                ticket,
                without: None,
            };
            assert_eq!(Recording::events(&until).count() as u64, ticket.min(3));
        }
        let first = FxHashSet::from_iter([0]);
        let until = Until {
            recording,
            ticket: 2,
            without: Some(&first),
        };
        let left: Vec<u64> = Recording::events(&until).map(|one| one.ticket).collect();
        assert_eq!(left, [1]);
    }
}
