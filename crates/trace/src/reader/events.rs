//! All events in the order of time: events of the spool, merged with the other events of the ring.

use std::iter::Peekable;

use super::ring::{RingEvents, TimedEvent};
use super::spool::SpoolEvents;
use super::{Record, Trace};
use crate::clock::Calibration;

/// Iterates over the readable events of a [`Trace`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    ring: Peekable<RingEvents<'a>>,
    spool: Option<Peekable<SpoolEvents<'a>>>,
    clock: Calibration,
    /// Number of events before the next one.
    place: u64,
    readable: u64,
}

impl<'a> Events<'a> {
    /// Returns the events of a trace. Frames of a spool without events after these ticks are left
    /// out.
    pub(super) fn new(trace: &'a Trace, after: Option<u64>) -> Events<'a> {
        Events {
            ring: trace.ring.events(&trace.bytes).peekable(),
            spool: trace
                .spool
                .as_ref()
                .map(|spool| spool.events(after).peekable()),
            clock: trace.header.clock,
            // Unreadable events count as the oldest.
            place: trace.recorded().saturating_sub(trace.readable()),
            readable: trace.readable(),
        }
    }

    /// Returns the next event, as it was found.
    pub(super) fn next_found(&mut self) -> Option<TimedEvent> {
        if let Some(spool) = &mut self.spool {
            return match (spool.peek(), self.ring.peek()) {
                (Some(spooled), Some(kept)) if spooled.rank() <= kept.rank() => spool.next(),
                (Some(_), None) => spool.next(),
                _ => self.ring.next(),
            };
        }
        self.ring.next()
    }
}

impl Iterator for Events<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let found = self.next_found()?;
        let ticket = self.place;
        self.place += 1;
        Some(Record {
            ticket,
            ns: self.clock.ns(found.ticks),
            event: found.event,
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.readable).ok())
    }
}
