//! The event ring of a file: what of it is readable, in which order, and what is lost.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Record;
use super::bytes::Bytes;
use super::header::{Part, Parts};
use crate::trace::clock::Calibration;
use crate::trace::event::{Class, Event, Kind};
use crate::trace::layout::{FIELDS, FieldId, PartKind, Slot, cursor};

/// The largest record that is believed, bytes.
const RECORD_MAX: u64 = 256;
const WORDS_MAX: usize = RECORD_MAX as usize / 8;

/// The ring as it was when the file was opened.
#[derive(Debug)]
pub struct RingView {
    part: Option<Part>,
    fields: [(u16, u16); FIELDS.len()],
    /// Slots of the ring, whether the file still holds them or not.
    pub capacity: u64,
    /// Tickets handed out.
    pub recorded: u64,
    /// Complete events.
    pub readable: u64,
    /// Events being written.
    pub torn: u64,
    /// Events given up for a busy slot.
    pub dropped: u64,
    /// Tickets that lie before [`RingView::walk`], sorted: those older than the last lap whose
    /// slots no newer event took, which is rare, or all those of a ring that is cut off.
    listed: Vec<u64>,
    /// From here on each ticket is looked for in its slot.
    walk: u64,
}

impl RingView {
    /// Looks at every slot once.
    pub fn scan(bytes: &Bytes, parts: &Parts, problems: &mut Vec<String>) -> RingView {
        let mut view = RingView {
            part: None,
            fields: parts.fields,
            capacity: 0,
            recorded: 0,
            readable: 0,
            torn: 0,
            dropped: 0,
            listed: Vec::new(),
            walk: 0,
        };
        let Some(part) = parts.get(PartKind::Ring) else {
            problems.push("the file names no event ring: no events can be read".to_string());
            return view;
        };
        let (sequence_at, sequence_width) = parts.fields[FieldId::Sequence as usize];
        let capacity = part.length / part.stride;
        let fits = part.stride.is_multiple_of(8) && (16..=RECORD_MAX).contains(&part.stride);
        if !fits || !capacity.is_power_of_two() || sequence_at != 0 || sequence_width != 8 {
            problems.push(
                "the event ring's description makes no sense: no events can be read".to_string(),
            );
            return view;
        }
        (view.part, view.capacity) = (Some(part), capacity);

        let held = (bytes.len().saturating_sub(part.offset) / part.stride).min(capacity);
        if held < capacity {
            problems.push(format!(
                "the event ring is cut off: {held} of {capacity} slots are there"
            ));
        }
        let slots = Slots {
            bytes,
            part,
            capacity,
            held,
        };
        let cursor = parts.get(PartKind::Cursor).map(|part| part.offset);
        let word = |at: usize| cursor.and_then(|cursor| bytes.u64(cursor.checked_add(at as u64)?));
        // The cursor is read after the slots, so that a running process's newest event is below it.
        let newest = slots.tickets().max();
        view.recorded = recorded(&slots, newest, || word(cursor::NEXT), problems);
        view.dropped = word(cursor::DROPPED).unwrap_or(0);
        view.count(&slots, problems);
        view
    }

    /// First ticket of the last lap.
    fn window(&self) -> u64 {
        self.recorded.saturating_sub(self.capacity)
    }

    /// Counts what is complete and what is torn, and finds the tickets before the last lap.
    fn count(&mut self, slots: &Slots<'_>, problems: &mut Vec<String>) {
        // Of a ring that is cut off the slots that are there are walked, not those that should be.
        let walk = if slots.held < slots.capacity {
            self.recorded
        } else {
            self.window()
        };
        let mut foreign = 0_u64;
        for index in 0..slots.held {
            match slots.state(index) {
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
                    if ticket < walk {
                        self.listed.push(ticket);
                    }
                }
            }
        }
        self.listed.sort_unstable();
        self.walk = walk;
        if foreign > 0 {
            problems.push(format!(
                "{foreign} slots of the event ring hold impossible sequence numbers: left out"
            ));
        }
    }

    /// The events in the order of their tickets.
    pub fn events<'a>(&'a self, bytes: &'a Bytes, clock: Calibration) -> Events<'a> {
        Events {
            view: self,
            bytes,
            clock,
            listed: 0,
            ticket: self.walk,
        }
    }

    fn read(&self, bytes: &Bytes, clock: Calibration, ticket: u64) -> Option<Record> {
        let part = self.part?;
        let at = part.offset + (ticket & (self.capacity - 1)) * part.stride;
        let words = bytes.atomics(at, (part.stride / 8) as usize)?;
        let record = copy_if(words, ticket)?;
        let get = |id: FieldId| extract(&record, self.fields[id as usize]);
        let event = Event {
            kind: Kind::from_number(get(FieldId::Kind) as u8),
            class: Class::from_number(get(FieldId::Class) as u8),
            flags: get(FieldId::Flags) as u16,
            device: get(FieldId::Device) as u8,
            result: get(FieldId::Result) as i16,
            thread: get(FieldId::Thread) as u32,
            stack: get(FieldId::Stack) as u32,
            address: get(FieldId::Address),
            size: get(FieldId::Size),
            extra: [get(FieldId::Extra0), get(FieldId::Extra1)],
        };
        Some(Record {
            ticket,
            ns: clock.ns(get(FieldId::Ticks)),
            event,
        })
    }
}

/// The slots that a file holds.
struct Slots<'a> {
    bytes: &'a Bytes,
    part: Part,
    /// Slots that the file should hold.
    capacity: u64,
    /// Slots that it holds.
    held: u64,
}

impl Slots<'_> {
    fn state(&self, index: u64) -> Slot {
        Slot::decode(
            self.bytes
                .u64(self.part.offset + index * self.part.stride)
                .unwrap_or(0),
        )
    }

    /// The tickets that fit their slots, complete or being written.
    fn tickets(&self) -> impl Iterator<Item = u64> {
        (0..self.held).filter_map(|index| match self.state(index) {
            Slot::Complete(ticket) | Slot::Writing(ticket) => {
                (ticket & (self.capacity - 1) == index).then_some(ticket)
            }
            Slot::Empty => None,
        })
    }
}

/// How many tickets were handed out: what the cursor says, unless the slots speak against it.
fn recorded(
    slots: &Slots<'_>,
    newest: Option<u64>,
    cursor: impl Fn() -> Option<u64>,
    problems: &mut Vec<String>,
) -> u64 {
    let from_slots = newest.map_or(0, |newest| newest.saturating_add(1));
    let Some(next) = cursor() else {
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
    let (above, below) = slots
        .tickets()
        .fold((0_u64, 0_u64), |(above, below), ticket| {
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

/// A copy of a slot, if it held this ticket's event completely before and after copying.
#[inline]
fn copy_if(slot: &[AtomicU64], ticket: u64) -> Option<[u64; WORDS_MAX]> {
    let sequence = slot.first()?;
    if sequence.load(Ordering::Relaxed) != Slot::complete(ticket) {
        return None;
    }
    fence(Ordering::Acquire);
    let mut record = [0; WORDS_MAX];
    for (to, from) in record.iter_mut().zip(slot) {
        *to = from.load(Ordering::Relaxed);
    }
    fence(Ordering::Acquire);
    (sequence.load(Ordering::Relaxed) == Slot::complete(ticket)).then_some(record)
}

/// A little-endian number of 1, 2, 4 or 8 bytes; 0 where it would reach outside.
#[inline]
fn extract(record: &[u64; WORDS_MAX], (offset, width): (u16, u16)) -> u64 {
    let (index, shift) = (usize::from(offset / 8), u32::from(offset % 8) * 8);
    if width == 0 || offset % width != 0 {
        return 0;
    }
    let word = record.get(index).copied().unwrap_or(0) >> shift;
    if width >= 8 {
        word
    } else {
        word & ((1 << (width * 8)) - 1)
    }
}

/// Iterates over the readable events of a [`super::Trace`].
#[derive(Clone, Debug)]
pub struct Events<'a> {
    view: &'a RingView,
    bytes: &'a Bytes,
    clock: Calibration,
    listed: usize,
    ticket: u64,
}

impl Iterator for Events<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while let Some(ticket) = self.view.listed.get(self.listed) {
            self.listed += 1;
            if let Some(record) = self.view.read(self.bytes, self.clock, *ticket) {
                return Some(record);
            }
        }
        while self.ticket < self.view.recorded {
            let ticket = self.ticket;
            self.ticket += 1;
            if let Some(record) = self.view.read(self.bytes, self.clock, ticket) {
                return Some(record);
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.view.readable).ok())
    }
}
