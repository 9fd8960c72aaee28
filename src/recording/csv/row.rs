//! An event of a log, as it is kept in memory.

use gpushim_trace::{Class, Event, Kind, Record};

/// What `Reader` sets in an event; everything else of it follows from that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    ns: u64,
    address: u64,
    size: u64,
    stream: u64,
    thread: u32,
    result: i16,
    kind: Kind,
    class: Class,
}

impl Row {
    /// Of an event that a log's reader made.
    pub(super) fn of(record: &Record) -> Row {
        let event = &record.event;
        Row {
            ns: record.ns,
            address: event.address,
            size: event.size,
            stream: event.extra[0],
            thread: event.thread,
            result: event.result,
            kind: event.kind,
            class: event.class,
        }
    }

    /// The same event, the one with this place among all.
    pub(super) fn record(&self, ticket: u64) -> Record {
        Record {
            ticket,
            ns: self.ns,
            event: Event {
                thread: self.thread,
                device: 0,
                result: self.result,
                address: self.address,
                size: self.size,
                extra: [self.stream, 0],
                ..Event::new(self.kind, self.class)
            },
        }
    }
}
