//! A chunk of the ring, copied up to a cut.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::event::Event;
use crate::layout::{Chunk, RECORD_BYTES, Slot, get_u64};
use crate::reader::ring::copy_if;

/// Words of a record.
const WORDS: usize = RECORD_BYTES / 8;
/// How often a chunk in which a slot is being written is looked at again.
const LOOKS: usize = 100;

/// The events of a chunk up to a cut: the records by their slots.
#[derive(Debug)]
pub struct Copied {
    slots: Vec<Option<(u64, [u64; WORDS])>>,
    recorded: u64,
    /// Events that came after the cut.
    later: u64,
}

impl Copied {
    /// Looks at a chunk, given its word and its slots, until nothing in it is being written.
    pub fn look(word: &[AtomicU64], slots: &[AtomicU64], cut: u64) -> Copied {
        let mut looks = 0;
        loop {
            let before = word.first().map_or(0, |word| word.load(Ordering::Acquire));
            let mut copied = Copied {
                slots: vec![None; slots.len() / WORDS],
                recorded: 0,
                later: 0,
            };
            let (mut first_later, mut own, mut is_torn) = (u64::MAX, 0, false);
            // The last one first, as slots are filled from the first on.
            for (index, slot) in slots.chunks_exact(WORDS).enumerate().rev() {
                let sequence = slot.first().map_or(0, |word| word.load(Ordering::Acquire));
                let number = match Slot::decode(sequence) {
                    Slot::Complete(number) => number,
                    Slot::Writing(_) => {
                        is_torn = true;
                        continue;
                    }
                    Slot::Empty => continue,
                };
                let Some(record) = copy_if::<WORDS, _>(slot, number) else {
                    is_torn = true;
                    continue;
                };
                if let Chunk::Open(begun) = Chunk::decode(before) {
                    own += u64::from(number.checked_sub(index as u64) == Some(begun));
                }
                copied.keep(index, number, record, cut, &mut first_later);
            }
            let after = word.first().map_or(0, |word| word.load(Ordering::Acquire));
            looks += 1;
            if (is_torn || before != after) && looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            let said = match Chunk::decode(after) {
                Chunk::Closed(events) => events,
                Chunk::Open(events) => events + own,
            };
            copied.recorded = copied.shown().max(said.min(first_later));
            if copied.slots.iter().all(Option::is_none) {
                // A chunk that holds nothing counts nothing.
                copied.recorded = 0;
            } else if copied.recorded > copied.shown() && copied.later > 0 {
                copied.recorded = copied.shown();
            }
            return copied;
        }
    }

    /// What an earlier copy holds.
    pub fn again(bytes: &[u8]) -> Copied {
        let mut copied = Copied {
            slots: Vec::new(),
            recorded: 0,
            later: 0,
        };
        for slot in bytes.chunks_exact(RECORD_BYTES) {
            let mut record = [0; WORDS];
            for (index, word) in record.iter_mut().enumerate() {
                *word = get_u64(slot, index * 8).unwrap_or(0);
            }
            copied.slots.push(match Slot::decode(record[0]) {
                Slot::Complete(number) => Some((number, record)),
                Slot::Empty | Slot::Writing(_) => None,
            });
        }
        copied.recorded = copied.shown();
        copied
    }

    fn keep(
        &mut self,
        index: usize,
        number: u64,
        record: [u64; WORDS],
        cut: u64,
        first_later: &mut u64,
    ) {
        if record[1] > cut {
            self.later += 1;
            *first_later = number.min(*first_later);
        } else if let Some(place) = self.slots.get_mut(index) {
            *place = Some((number, record));
        }
    }

    /// Whether it holds only events after the cut.
    pub fn is_all_later(&self) -> bool {
        self.later > 0 && self.slots.iter().all(Option::is_none)
    }

    /// Events that its slots show to have been recorded.
    fn shown(&self) -> u64 {
        let numbers = self.slots.iter().flatten().map(|(number, _)| number + 1);
        numbers.max().unwrap_or(0)
    }

    /// Events that were recorded in it up to the cut.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// The events, in the order of their slots.
    pub fn events(&self) -> impl Iterator<Item = (u64, Event)> {
        self.slots.iter().flatten().map(|(_, record)| {
            let [_, rest @ ..] = record;
            Event::from_words(*rest)
        })
    }

    /// The slots as they lie in a file.
    pub fn bytes(&self) -> Vec<u8> {
        let record =
            |slot: &Option<(u64, [u64; WORDS])>| slot.map_or([0; WORDS], |(_, words)| words);
        let words = self.slots.iter().flat_map(record);
        words.flat_map(u64::to_le_bytes).collect()
    }
}
