//! The ring of version 1: each event has a ticket, and ticket t lies in slot t modulo the capacity.

use super::{Cursor, RingView, Run, Slots};
use crate::layout::{Slot, cursor};
use crate::reader::bytes::Bytes;

impl RingView {
    /// Counts what is complete and what is torn, and finds the runs of tickets.
    pub(super) fn scan_tickets(
        &mut self,
        bytes: &Bytes,
        slots: &Slots,
        cursor: &Cursor<'_>,
        problems: &mut Vec<String>,
    ) {
        // The cursor is read after the slots, so that a running process's newest event is below it.
        let newest = tickets(bytes, slots).max();
        self.recorded = recorded(bytes, slots, newest, cursor, problems);
        self.wrapped = self.recorded > self.capacity;
        let mut foreign = 0_u64;
        for index in 0..slots.held {
            match slots.state(bytes, index) {
                Slot::Empty => {}
                Slot::Complete(ticket) | Slot::Writing(ticket)
                    if ticket & (self.capacity - 1) != index =>
                {
                    foreign += 1;
                }
                Slot::Complete(ticket) | Slot::Writing(ticket) if ticket >= self.recorded => {}
                Slot::Writing(_) => self.torn += 1,
                Slot::Complete(ticket) => {
                    self.readable += 1;
                    self.add(index, ticket);
                }
            }
        }
        if foreign > 0 {
            problems.push(format!(
                "{foreign} slots of the event ring hold impossible sequence numbers: left out"
            ));
        }
    }

    fn add(&mut self, index: u64, ticket: u64) {
        match self.runs.last_mut() {
            Some(run) if run.first + run.length == index && run.number + run.length == ticket => {
                run.length += 1;
            }
            _ => self.runs.push(Run {
                key: ticket,
                first: index,
                number: ticket,
                length: 1,
            }),
        }
    }
}

/// The tickets that fit their slots, complete or being written.
fn tickets(bytes: &Bytes, slots: &Slots) -> impl Iterator<Item = u64> {
    (0..slots.held).filter_map(|index| match slots.state(bytes, index) {
        Slot::Complete(ticket) | Slot::Writing(ticket) => {
            (ticket & (slots.capacity - 1) == index).then_some(ticket)
        }
        Slot::Empty => None,
    })
}

/// How many tickets were handed out: what the cursor says, unless the slots speak against it.
fn recorded(
    bytes: &Bytes,
    slots: &Slots,
    newest: Option<u64>,
    cursor: &Cursor<'_>,
    problems: &mut Vec<String>,
) -> u64 {
    let from_slots = newest.map_or(0, |newest| newest.saturating_add(1));
    let Some(next) = cursor.word(cursor::NEXT) else {
        problems.push(
            "the event ring's cursor is missing: counts of lost events may be wrong".to_string(),
        );
        return from_slots;
    };
    if next >= from_slots {
        // Beyond the slots it can be by a lap of a ring that is cut off, or by dying threads.
        if next - from_slots <= slots.capacity.max(SANE_GAP) {
            return next;
        }
        problems.push(format!(
            "the event ring's cursor ({next}) is far beyond its newest event ({from_slots}): \
             counts of lost events may be wrong"
        ));
        return from_slots;
    }
    let (above, below) = tickets(bytes, slots).fold((0_u64, 0_u64), |(above, below), ticket| {
        if ticket >= next {
            (above + 1, below)
        } else {
            (above, below + 1)
        }
    });
    if above <= below {
        problems.push(format!(
            "{above} slots of the event ring hold impossible sequence numbers: left out"
        ));
        return next;
    }
    problems.push(format!(
        "the event ring's cursor ({next}) is behind its newest event ({from_slots}): \
         counts of lost events may be wrong"
    ));
    from_slots
}

/// More threads than this between ticket and slot when a process died are not believed.
const SANE_GAP: u64 = 1 << 20;
