//! Readable events in order: the runs, merged.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{FORGET, RingView, Run, Slots};
use crate::event::Event;
use crate::reader::bytes::Bytes;
use crate::tail::takes;

impl RingView {
    /// Returns the readable events in order.
    pub fn events<'a>(&'a self, bytes: &'a Bytes) -> RingEvents<'a> {
        RingEvents {
            view: self,
            bytes,
            waiting: &self.runs,
            heads: BinaryHeap::new(),
            given: 0,
        }
    }
}

/// Event of the ring, or of a spool.
#[derive(Clone, Copy, Debug)]
pub struct TimedEvent {
    /// Time of the event, ticks.
    pub ticks: u64,
    /// The recorded event itself.
    pub event: Event,
}

impl TimedEvent {
    /// Returns the key of its place in order. At the same instant memory is freed before it is
    /// allocated again.
    pub fn rank(&self) -> (u64, bool) {
        (self.ticks, takes(self.event.kind))
    }
}

/// Iterates over the readable events of a ring.
#[derive(Clone, Debug)]
pub struct RingEvents<'a> {
    view: &'a RingView,
    bytes: &'a Bytes,
    /// Runs without an event given yet.
    waiting: &'a [Run],
    /// The next event of each run that has begun: as many as threads recorded at the same time.
    heads: BinaryHeap<Head>,
    /// Number of events given so far.
    given: u64,
}

/// The next event of a run.
#[derive(Clone, Copy, Debug)]
struct Head {
    ticks: u64,
    event: Event,
    /// Its slot, its number, and the number of later slots of its run.
    slot: u64,
    number: u64,
    after: u64,
}

impl Head {
    /// Returns the next readable event among `length` slots from one on.
    fn find(
        slots: &Slots,
        bytes: &Bytes,
        (mut slot, mut number, mut length): (u64, u64, u64),
    ) -> Option<Head> {
        while length > 0 {
            length -= 1;
            if let Some((ticks, event)) = slots.read(bytes, slot, number) {
                return Some(Head {
                    ticks,
                    event,
                    slot,
                    number,
                    after: length,
                });
            }
            (slot, number) = (slot + 1, number + 1);
        }
        None
    }

    /// Returns the key of its place in order. At the same instant memory is freed before it is
    /// allocated again.
    fn rank(&self) -> (u64, bool, u64) {
        (self.ticks, takes(self.event.kind), self.slot)
    }
}

impl Ord for Head {
    /// Orders the next event as the greatest, as [`BinaryHeap`] requires.
    fn cmp(&self, other: &Head) -> Ordering {
        other.rank().cmp(&self.rank())
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.rank() == other.rank()
    }
}

impl Eq for Head {}

impl Iterator for RingEvents<'_> {
    type Item = TimedEvent;

    fn next(&mut self) -> Option<TimedEvent> {
        let slots = self.view.slots.as_ref()?;
        let bytes = self.bytes;
        // Takes the runs that begin before the next event, or with it.
        while let Some((run, rest)) = self.waiting.split_first() {
            if self.heads.peek().is_some_and(|head| head.ticks < run.key) {
                break;
            }
            self.waiting = rest;
            let place = (run.first, run.number, run.length);
            self.heads.extend(Head::find(slots, bytes, place));
        }
        let mut top = self.heads.peek_mut()?;
        let head = *top;
        let place = (head.slot + 1, head.number.wrapping_add(1), head.after);
        match Head::find(slots, bytes, place) {
            Some(next) => *top = next,
            None => {
                std::collections::binary_heap::PeekMut::pop(top);
            }
        }
        self.given += 1;
        if self.given.is_multiple_of(FORGET) {
            bytes.forget();
        }
        Some(TimedEvent {
            ticks: head.ticks,
            event: head.event,
        })
    }
}
