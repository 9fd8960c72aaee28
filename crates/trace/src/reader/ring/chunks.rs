//! Chunks of the ring, each filled in order by one thread at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Cursor, FORGET, RingView, Run, Slots};
use crate::layout::{Chunk, PartKind, Slot, cursor};
use crate::reader::bytes::Bytes;
use crate::reader::header::Parts;
use crate::ring::Word;

/// Number of times a chunk that changes meanwhile is read.
const LOOKS: usize = 100;

/// Largest number of slots of a chunk that a reader accepts.
const CHUNK_MAX: u64 = 1 << 10;

impl RingView {
    /// Counts complete and torn events, and finds the runs of events.
    pub(super) fn scan_chunks(
        &mut self,
        bytes: &Bytes,
        parts: &Parts,
        slots: &Slots,
        cursor: &Cursor<'_>,
        problems: &mut Vec<String>,
    ) {
        let chunks = Chunks::find(bytes, parts, slots, cursor, problems);
        self.each = chunks.each;
        let (mut foreign, mut doubtful) = (0, 0);
        let mut states = Vec::new();
        for chunk in 0..slots.held.div_ceil(chunks.each).max(chunks.held) {
            let first = chunk * chunks.each;
            if chunk.is_multiple_of((FORGET / chunks.each).max(1)) {
                bytes.forget();
            }
            let word = chunks.word(bytes, chunk);
            let state = |index| slots.state(bytes, first + index);
            states.resize(chunks.each as usize, Slot::Empty);
            let word = look(word, &mut states, state);
            // Read after the chunk, so that a running process is not ahead of it.
            let limit = chunks.limit(cursor, chunk);
            let sound = Sound::judge(word, &mut states, limit);
            foreign += sound.foreign;
            let whole = first + chunks.each <= slots.held;
            let events = match sound.said {
                Some(said) if (sound.shown..=limit).contains(&said) => {
                    doubtful += u64::from(whole && sound.foreign == 0 && said != sound.shown);
                    said
                }
                Some(_) => {
                    doubtful += 1;
                    sound.shown
                }
                // The file is cut off, or has no chunk words: only the present events are counted.
                None => sound.kept,
            };
            self.recorded = self.recorded.saturating_add(events);
            let places = if whole {
                sound.kept + sound.foreign
            } else {
                chunks.each
            };
            self.wrapped |= events > places;
            self.collect(bytes, slots, first, &states);
        }
        self.recorded = self.recorded.saturating_add(self.dropped);
        if foreign > 0 {
            problems.push(format!(
                "{foreign} slots of the event ring hold impossible sequence numbers: left out"
            ));
        }
        if doubtful > 0 {
            problems.push(format!(
                "{doubtful} chunks of the event ring do not count the events that they hold: counts of \
                 lost events may be wrong"
            ));
        }
    }

    /// Adds a chunk's events to the counts, and its runs.
    fn collect(&mut self, bytes: &Bytes, slots: &Slots, first: u64, states: &[Slot]) {
        let mut run: Option<Run> = None;
        for (index, state) in (first..).zip(states) {
            match *state {
                Slot::Empty => {}
                Slot::Writing(_) => self.torn += 1,
                Slot::Complete(number) => {
                    self.readable += 1;
                    let fits =
                        |run: &Run| number.checked_sub(run.number) == Some(index - run.first);
                    match &mut run {
                        Some(run) if fits(run) => run.length = index - run.first + 1,
                        _ => {
                            self.runs.extend(run);
                            let event = slots.read(bytes, index, number);
                            run = Some(Run {
                                key: event.map_or(0, |(ticks, _)| ticks),
                                first: index,
                                number,
                                length: 1,
                            });
                        }
                    }
                }
            }
        }
        self.runs.extend(run);
    }
}

/// Place of the words of the chunks.
struct Chunks {
    offset: u64,
    stride: u64,
    /// Number of words that the file should hold.
    words: u64,
    /// Number of words that the file holds.
    held: u64,
    /// Number of slots of a chunk.
    each: u64,
    /// True if the cursor is plausible.
    cursor: bool,
}

impl Chunks {
    fn find(
        bytes: &Bytes,
        parts: &Parts,
        slots: &Slots,
        cursor: &Cursor<'_>,
        problems: &mut Vec<String>,
    ) -> Chunks {
        let part = parts.get(PartKind::Chunks);
        let words = part.map_or(0, |part| part.length / part.stride);
        let fits = words.is_power_of_two()
            && words <= slots.capacity
            && slots.capacity / words <= CHUNK_MAX
            && part.is_some_and(|part| part.stride.is_multiple_of(8));
        let Some(part) = part.filter(|_| fits) else {
            problems.push(
                "the file does not say how its event ring is divided: counts of lost events may be \
                 wrong"
                    .to_string(),
            );
            return Chunks {
                offset: 0,
                stride: 8,
                words: 0,
                held: 0,
                each: 1,
                cursor: false,
            };
        };
        let mut chunks = Chunks {
            offset: part.offset,
            stride: part.stride,
            words,
            held: (bytes.len().saturating_sub(part.offset) / part.stride).min(words),
            each: slots.capacity / words,
            cursor: true,
        };
        if let Some(problem) = chunks.problem(bytes, cursor) {
            problems.push(problem);
            chunks.cursor = false;
        }
        chunks
    }

    /// Returns the fault of the cursor, by comparison with the words of the chunks. It assumes that
    /// only few of these are damaged.
    fn problem(&self, bytes: &Bytes, cursor: &Cursor<'_>) -> Option<String> {
        let (mut beyond, mut within) = (0_u64, 0_u64);
        for chunk in 0..self.held {
            let Some(word) = self.word(bytes, chunk) else {
                break;
            };
            let (Chunk::Closed(events) | Chunk::Open(events)) =
                Chunk::decode(word.load(Ordering::Acquire));
            if events > self.limit(cursor, chunk) {
                beyond += 1;
            } else if events > 0 {
                within += 1;
            }
        }
        match cursor.word(cursor::NEXT) {
            None => Some("the event ring's cursor is missing".to_string()),
            Some(next) if beyond > within => Some(format!(
                "the event ring's cursor ({next}) is behind what its chunks say"
            )),
            Some(_) => None,
        }
    }

    fn word<'a>(&self, bytes: &'a Bytes, chunk: u64) -> Option<&'a AtomicU64> {
        if chunk >= self.words {
            return None;
        }
        let at = self.offset.checked_add(chunk * self.stride)?;
        bytes.atomics(at, 1)?.first()
    }

    /// Returns the most events that can have been recorded in a chunk, by its number of turns.
    fn limit(&self, cursor: &Cursor<'_>, chunk: u64) -> u64 {
        let Some(next) = cursor.word(cursor::NEXT).filter(|_| self.cursor) else {
            return u64::MAX;
        };
        let turns = next / self.words + u64::from(chunk < next % self.words);
        turns.saturating_mul(self.each)
    }
}

/// Reads a chunk: its word and its slots as they were at one moment. Only slots filled meanwhile by
/// its holder may be newer, and none of them is seen without the slots before it.
pub fn look<W: Word>(
    word: Option<&W>,
    states: &mut [Slot],
    state: impl Fn(u64) -> Slot,
) -> Option<Chunk> {
    for _ in 0..LOOKS {
        // Acquire: everything written before the chunk came into this state is seen.
        let before = word.map(|word| word.load(Ordering::Acquire));
        // From the last slot on, because slots are filled from the first.
        for (index, seen) in states.iter_mut().enumerate().rev() {
            *seen = state(index as u64);
        }
        // Each slot was loaded with acquire. If one had been of a later holder, the word would be
        // changed now.
        let after = word.map(|word| word.load(Ordering::Relaxed));
        if before == after {
            return after.map(Chunk::decode);
        }
    }
    word.map(|word| Chunk::decode(word.load(Ordering::Acquire)))
}

/// Counts of a chunk, without its impossible slots.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sound {
    /// Number of events recorded in the chunk by its word; `None` without a word.
    pub said: Option<u64>,
    /// Number of events recorded in the chunk by its slots.
    pub shown: u64,
    /// Number of slots that hold an event, complete or torn.
    pub kept: u64,
    /// Number of slots that were left out.
    pub foreign: u64,
}

impl Sound {
    /// Empties the slots with impossible numbers, and counts the others.
    pub fn judge(word: Option<Chunk>, states: &mut [Slot], limit: u64) -> Sound {
        let mut sound = Sound::default();
        for state in states.iter_mut() {
            if matches!(*state, Slot::Complete(number) | Slot::Writing(number) if number >= limit) {
                *state = Slot::Empty;
                sound.foreign += 1;
            }
        }
        sound.foreign += thin_out(states);
        let numbers = || {
            (0_u64..)
                .zip(states.iter())
                .filter_map(|(index, state)| match *state {
                    Slot::Complete(number) | Slot::Writing(number) => Some((index, number)),
                    Slot::Empty => None,
                })
        };
        for (_, number) in numbers() {
            sound.kept += 1;
            sound.shown = sound.shown.max(number.saturating_add(1));
        }
        sound.said = word.map(|word| match word {
            Chunk::Closed(events) => events,
            Chunk::Open(events) => {
                let own = |(index, number): &(u64, u64)| number.checked_sub(*index) == Some(events);
                events.saturating_add(numbers().filter(own).count() as u64)
            }
        });
        sound
    }
}

/// Empties the fewest slots such that the rest is possible: threads wrote it one after the other,
/// each from the first slot on. Returns the number of emptied slots.
fn thin_out(states: &mut [Slot]) -> u64 {
    // Number of the event in the first slot when this one was written. It cannot grow from slot to
    // slot, because a thread that wrote a slot also wrote the slots before it.
    let base = |(index, state): (u64, &Slot)| match *state {
        Slot::Complete(number) | Slot::Writing(number) => {
            Some(number.checked_sub(index).unwrap_or(u64::MAX))
        }
        Slot::Empty => None,
    };
    let bases = || (0_u64..).zip(states.iter()).map(base);
    let known = || bases().flatten();
    if known().is_sorted_by(|a, b| a >= b) && known().next() != Some(u64::MAX) {
        return 0;
    }
    let bases: Vec<Option<u64>> = bases().collect();
    // Longest sequence that does not grow: for each slot its length, and the slot before it.
    let mut best: Vec<(u64, Option<usize>)> = Vec::with_capacity(bases.len());
    for (index, base) in bases.iter().enumerate() {
        let earlier = (0..index).filter(|earlier| bases[*earlier] >= *base && best[*earlier].0 > 0);
        let from = earlier.max_by_key(|earlier| best[*earlier].0);
        let possible = base.is_some_and(|base| base != u64::MAX);
        let length = from.map_or(1, |from| best[from].0 + 1);
        best.push(if possible { (length, from) } else { (0, None) });
    }
    let mut keep = vec![false; states.len()];
    let last = (0..best.len()).max_by_key(|index| best[*index].0);
    let mut at = last.filter(|index| best[*index].0 > 0);
    while let Some(index) = at {
        keep[index] = true;
        at = best[index].1;
    }
    let mut removed = 0;
    for (state, keep) in states.iter_mut().zip(keep) {
        if !keep && *state != Slot::Empty {
            *state = Slot::Empty;
            removed += 1;
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges a chunk with these numbers in its slots: the numbers left, and what is found.
    fn judge(word: Chunk, numbers: &[u64], limit: u64) -> (Vec<Option<u64>>, Sound) {
        let mut states: Vec<Slot> = numbers.iter().copied().map(Slot::Complete).collect();
        let sound = Sound::judge(Some(word), &mut states, limit);
        let left = states.into_iter().map(|state| match state {
            Slot::Complete(number) => Some(number),
            _ => None,
        });
        (left.collect(), sound)
    }

    fn found(said: u64, shown: u64, kept: u64, foreign: u64) -> Sound {
        Sound {
            said: Some(said),
            shown,
            kept,
            foreign,
        }
    }

    #[test]
    fn a_chunk_of_several_holders_is_sound() {
        // The last holder used two slots, the one before it three, and the first all of them.
        let numbers = [9, 10, 8, 3, 4, 5];
        let all: Vec<_> = numbers.iter().copied().map(Some).collect();
        let closed = judge(Chunk::Closed(11), &numbers, u64::MAX);
        assert_eq!(closed, (all.clone(), found(11, 11, 6, 0)));
        let open = judge(Chunk::Open(9), &numbers, u64::MAX);
        assert_eq!(open, (all.clone(), found(11, 11, 6, 0)));
        // Taken by a thread that has not begun.
        let taken = judge(Chunk::Open(11), &numbers, u64::MAX);
        assert_eq!(taken, (all, found(11, 11, 6, 0)));
    }

    #[test]
    fn the_slot_that_contradicts_the_others_is_left_out() {
        for (numbers, bad) in [
            ([8, 1, 10, 11], 1),
            ([0, 9, 10, 11], 0),
            ([8, 9, 10_000, 11], 2),
            // Sound: two holders of one and three slots.
            ([4, 1, 2, 3], 4),
            ([8, 9, 10, 1], 3),
        ] {
            let (left, sound) = judge(Chunk::Closed(12), &numbers, u64::MAX);
            let expected = (0..)
                .zip(numbers)
                .map(|(index, number)| (index != bad).then_some(number));
            assert_eq!(left, expected.collect::<Vec<_>>(), "{numbers:?}");
            assert_eq!(sound.foreign, u64::from(bad < 4));
        }
    }

    #[test]
    fn what_is_beyond_the_turns_is_left_out() {
        let (left, sound) = judge(Chunk::Closed(8), &[4, 5, 6, 8], 8);
        assert_eq!(left, [Some(4), Some(5), Some(6), None]);
        assert_eq!(sound, found(8, 7, 3, 1));
    }
}
