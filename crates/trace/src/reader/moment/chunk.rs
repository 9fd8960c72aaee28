//! A chunk of the ring, copied up to a cut.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::Event;
use crate::layout::{Chunk, RECORD_BYTES, Slot};
use crate::reader::ring::copy_if;

/// Number of words of a record.
const WORDS: usize = RECORD_BYTES / 8;
/// Number of times a chunk is read, if a slot in it is being written.
const LOOKS: usize = 100;

/// Slots of a chunk up to a cut.
#[derive(Debug)]
pub struct Copied {
    /// Words of the slots: zeros for an empty one, only the sequence word for a torn one.
    slots: Vec<[u64; WORDS]>,
    /// Number of events recorded in the chunk up to the cut, with the overwritten ones.
    recorded: u64,
    /// True if later events have overwritten events from before the cut, or may have.
    pub is_overtaken: bool,
}

impl Copied {
    /// Reads a chunk, given its word and its slots, until nothing in it is being written.
    pub fn of(word: &AtomicU64, slots: &[AtomicU64], cut: u64) -> Copied {
        let mut seen = vec![[0; WORDS]; slots.len() / WORDS];
        for look in 1..=LOOKS {
            let before = word.load(Ordering::Acquire);
            let mut is_quiet = true;
            // From the last slot on, because slots are filled from the first.
            for (seen, slot) in seen.iter_mut().zip(slots.chunks_exact(WORDS)).rev() {
                let sequence = slot.first().map_or(0, |word| word.load(Ordering::Acquire));
                *seen = [0; WORDS];
                seen[0] = sequence;
                match Slot::decode(sequence) {
                    Slot::Empty => {}
                    Slot::Writing(_) => is_quiet = false,
                    Slot::Complete(number) => match copy_if::<WORDS, _>(slot, number) {
                        Some(record) => *seen = record,
                        // A later event is being written there: the slot is torn, and the next look
                        // reads it so.
                        None => {
                            seen[0] = Slot::writing(number);
                            is_quiet = false;
                        }
                    },
                }
            }
            // Each slot was loaded with acquire. If one had been of a later holder, the word would
            // be changed now.
            let is_held = before == word.load(Ordering::Relaxed);
            if is_held && (is_quiet || look == LOOKS) {
                return Copied::up_to(cut, seen, Chunk::decode(before));
            }
            std::hint::spin_loop();
        }
        // Threads lap the ring faster than it can be read: no event of the chunk is available.
        let recorded = match Chunk::decode(word.load(Ordering::Acquire)) {
            Chunk::Closed(events) | Chunk::Open(events) => events,
        };
        let mut none = Copied {
            slots: vec![[0; WORDS]; slots.len() / WORDS],
            recorded,
            is_overtaken: false,
        };
        none.mark(none.slots.len());
        none
    }

    /// Leaves out the events after the cut.
    fn up_to(cut: u64, slots: Vec<[u64; WORDS]>, word: Chunk) -> Copied {
        let recorded = match word {
            Chunk::Closed(events) => events,
            Chunk::Open(events) => {
                let own = (0..).zip(&slots).filter(|(index, slot)| {
                    number(slot).is_some_and(|number| number.checked_sub(*index) == Some(events))
                });
                events + own.count() as u64
            }
        };
        let mut copied = Copied {
            slots,
            recorded,
            is_overtaken: false,
        };
        let is_later = |slot: &&[u64; WORDS]| {
            matches!(Slot::decode(slot[0]), Slot::Complete(_)) && slot[1] > cut
        };
        let later = copied.slots.iter().filter(is_later).filter_map(number);
        let Some(first) = later.min() else {
            return copied;
        };
        let mut places = 0;
        for (index, slot) in copied.slots.iter_mut().enumerate() {
            if number(slot).is_some_and(|number| number >= first) {
                *slot = [0; WORDS];
                places = index + 1;
            }
        }
        copied.recorded = first;
        copied.mark(places);
        copied
    }

    /// Marks the last event before the cut as torn if a later one lay in its slot. `places` is the
    /// number of slots of later events, the first ones of the chunk. Without the mark the slots
    /// would show fewer events than were recorded, like a damaged chunk.
    fn mark(&mut self, places: usize) {
        let shown = self.slots.iter().filter_map(number).max();
        let Some(last) = self
            .recorded
            .checked_sub(1)
            .filter(|last| shown < Some(*last))
        else {
            return;
        };
        self.is_overtaken = true;
        // The number of an event is at least its slot's index.
        let index = (places as u64).saturating_sub(1).min(last);
        if let Some(slot) = self.slots.get_mut(index as usize) {
            slot[0] = Slot::writing(last);
        }
    }

    /// Returns the word of the chunk.
    pub fn word(&self) -> u64 {
        Chunk::Closed(self.recorded).word()
    }

    /// Returns the events with their ticks, in the order of their slots.
    pub fn events(&self) -> impl Iterator<Item = (u64, Event)> {
        let complete = |slot: &&[u64; WORDS]| matches!(Slot::decode(slot[0]), Slot::Complete(_));
        self.slots.iter().filter(complete).map(|slot| {
            let [_, rest @ ..] = *slot;
            Event::from_words(rest)
        })
    }

    /// Returns the slots as they lie in a file.
    pub fn bytes(&self) -> Vec<u8> {
        let words = self.slots.iter().flatten();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// Returns the number of the event in a slot.
fn number(slot: &[u64; WORDS]) -> Option<u64> {
    match Slot::decode(slot[0]) {
        Slot::Complete(number) | Slot::Writing(number) => Some(number),
        Slot::Empty => None,
    }
}
