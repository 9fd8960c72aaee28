//! The event ring of a file: its readable events, their order, and the number of lost ones.

use std::sync::atomic::{AtomicU64, Ordering};

use super::bytes::Bytes;
use super::header::{Part, Parts};
use crate::event::{Class, Event};
use crate::kind::Kind;
use crate::layout::{FIELDS, FieldId, PartKind, RECORD_BYTES, Slot, cursor};
use crate::ring::{Word, while_held};

pub(crate) mod chunks;
mod events;
mod spooled;

pub use events::{RingEvents, TimedEvent};

pub use spooled::Spooled;

/// Number of slots after which the memory of the file is freed, so that it does not stay resident:
/// 32 MiB.
const FORGET: u64 = 512 << 10;

/// Largest record that a reader accepts, bytes.
const RECORD_MAX: u64 = 256;
const WORDS_MAX: usize = RECORD_MAX as usize / 8;
/// Number of words of a record of this version.
const RECORD_WORDS: usize = RECORD_BYTES / 8;

/// View of the ring as it was when the file was opened.
#[derive(Debug)]
pub struct RingView {
    slots: Option<Slots>,
    /// Number of slots of the ring, even if the file no longer holds them.
    pub capacity: u64,
    /// Number of events recorded, dropped ones included.
    pub recorded: u64,
    /// Number of complete events.
    pub readable: u64,
    /// Number of events being written.
    pub torn: u64,
    /// Number of events dropped because every chunk tried was held.
    pub dropped: u64,
    /// True if newer events have taken the slots of older ones.
    pub wrapped: bool,
    /// Number of slots of a chunk.
    each: u64,
    /// Readable events, in runs sorted by the ticks of their first event.
    runs: Vec<Run>,
}

/// Successive events of the ring, written in this order by one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    /// Ticks of its first event.
    key: u64,
    /// Index of its first slot.
    first: u64,
    /// Number of the event in the first slot.
    number: u64,
    /// Number of slots of the run.
    length: u64,
}

impl RingView {
    /// Returns the number of attempts to take a chunk, and the number of chunks.
    pub fn turns(&self, bytes: &Bytes, parts: &Parts) -> (u64, u64) {
        let cursor = Cursor {
            bytes,
            at: parts.get(PartKind::Cursor).map(|part| part.offset),
        };
        let turns = cursor.word(cursor::NEXT).unwrap_or(0);
        (turns, self.capacity / self.each.max(1))
    }

    /// True if records have the layout of this version.
    pub fn is_ours(&self) -> bool {
        self.slots.is_some_and(|slots| slots.is_ours)
    }

    /// Reads every slot of the ring once.
    pub fn scan(bytes: &Bytes, parts: &Parts, problems: &mut Vec<String>) -> RingView {
        let mut view = RingView {
            slots: None,
            capacity: 0,
            recorded: 0,
            readable: 0,
            torn: 0,
            dropped: 0,
            wrapped: false,
            each: 1,
            runs: Vec::new(),
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
        let held = (bytes.len().saturating_sub(part.offset) / part.stride).min(capacity);
        if held < capacity {
            problems.push(format!(
                "the event ring is cut off: {held} of {capacity} slots are there"
            ));
        }
        let slots = Slots {
            part,
            capacity,
            held,
            fields: parts.fields,
            is_ours: part.stride == RECORD_BYTES as u64
                && FIELDS
                    .iter()
                    .zip(parts.fields)
                    .all(|(ours, field)| (ours.offset, ours.width) == field),
        };
        (view.slots, view.capacity) = (Some(slots), capacity);
        let cursor = Cursor {
            bytes,
            at: parts.get(PartKind::Cursor).map(|part| part.offset),
        };
        view.dropped = cursor.word(cursor::DROPPED).unwrap_or(0);
        view.scan_chunks(bytes, parts, &slots, &cursor, problems);
        view.runs.sort_unstable();
        view
    }
}

/// Cursor part: the counters of the ring.
struct Cursor<'a> {
    bytes: &'a Bytes,
    at: Option<u64>,
}

impl Cursor<'_> {
    fn word(&self, at: usize) -> Option<u64> {
        self.bytes.u64(self.at?.checked_add(at as u64)?)
    }
}

/// Slots of a ring, and the layout of their fields.
#[derive(Clone, Copy, Debug)]
struct Slots {
    part: Part,
    /// Number of slots that the file should hold.
    capacity: u64,
    /// Number of slots that the file holds.
    held: u64,
    fields: [(u16, u16); FIELDS.len()],
    /// True if records have the layout of this version.
    is_ours: bool,
}

impl Slots {
    /// Returns the words of a slot, if the file holds it.
    fn words<'a>(&self, bytes: &'a Bytes, index: u64) -> Option<&'a [AtomicU64]> {
        let at = self
            .part
            .offset
            .checked_add(index.checked_mul(self.part.stride)?)?;
        bytes.atomics(at, (self.part.stride / 8) as usize)
    }

    /// Returns the state of a slot, from its sequence word.
    fn state(&self, bytes: &Bytes, index: u64) -> Slot {
        let sequence = self.words(bytes, index).and_then(|words| words.first());
        // Acquire: the slots that are read after this one are at least as new.
        Slot::decode(sequence.map_or(0, |word| word.load(Ordering::Acquire)))
    }

    /// Returns the event of this number with its ticks, if the slot holds it completely.
    fn read(&self, bytes: &Bytes, index: u64, number: u64) -> Option<(u64, Event)> {
        let words = self.words(bytes, index)?;
        if self.is_ours {
            let [_, rest @ ..] = copy_if::<RECORD_WORDS, _>(words, number)?;
            return Some(Event::from_words(rest));
        }
        let record = copy_if::<WORDS_MAX, _>(words, number)?;
        let get = |id: FieldId| extract(&record, self.fields[id as usize]);
        let event = Event {
            kind: Kind::from_number(get(FieldId::Kind) as u8),
            class: Class::from_number(get(FieldId::Class) as u8),
            flags: get(FieldId::Flags) as u16,
            device: get(FieldId::Device) as u8,
            stream: get(FieldId::Stream) as u8,
            result: get(FieldId::Result) as i16,
            thread: get(FieldId::Thread) as u32,
            stack: get(FieldId::Stack) as u32,
            address: get(FieldId::Address),
            size: get(FieldId::Size),
            extra: [get(FieldId::Extra0), get(FieldId::Extra1)],
        };
        Some((get(FieldId::Ticks), event))
    }
}

/// Returns a copy of a slot's first words, if it held the event of this number completely before
/// and after copying.
#[inline]
pub fn copy_if<const N: usize, W: Word>(slot: &[W], number: u64) -> Option<[u64; N]> {
    while_held(slot.first()?, number, || {
        let mut record = [0; N];
        for (to, from) in record.iter_mut().zip(slot) {
            *to = from.load(Ordering::Relaxed);
        }
        record
    })
}

/// Returns a little-endian number of 1, 2, 4 or 8 bytes; 0 if it would reach outside.
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
