//! The ring by itself: laps, pauses, and a death after every single step.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::reader::ring::chunks::{Sound, look};
use crate::reader::ring::copy_if;

struct Memory<W> {
    next: W,
    dropped: W,
    chunks: Vec<W>,
    slots: Vec<Slot<W>>,
}

impl<W: Word> Memory<W> {
    fn new(chunks: usize, each: usize, word: impl Fn() -> W) -> Memory<W> {
        let slot = || Slot {
            sequence: word(),
            payload: std::array::from_fn(|_| word()),
        };
        Memory {
            next: word(),
            dropped: word(),
            chunks: (0..chunks).map(|_| word()).collect(),
            slots: (0..chunks * each).map(|_| slot()).collect(),
        }
    }

    fn ring(&self) -> Ring<'_, W> {
        Ring::new(&self.next, &self.dropped, &self.chunks, &self.slots).unwrap()
    }

    /// Returns the counts and events that a reader finds.
    fn read(&self) -> Found {
        let each = self.slots.len() / self.chunks.len();
        let mut found = Found {
            recorded: self.dropped.load(Ordering::Relaxed),
            ..Found::default()
        };
        for (chunk, slots) in self.chunks.iter().zip(self.slots.chunks(each)) {
            let mut states = vec![State::Empty; each];
            let state =
                |index: u64| State::decode(slots[index as usize].sequence.load(Ordering::Acquire));
            let word = look(Some(chunk), &mut states, state);
            let sound = Sound::judge(word, &mut states, u64::MAX);
            assert_eq!(sound.foreign, 0);
            assert_eq!(sound.said, Some(sound.shown));
            found.recorded += sound.shown;
            for (slot, state) in slots.iter().zip(states) {
                match state {
                    State::Empty => {}
                    State::Writing(_) => found.torn += 1,
                    State::Complete(number) => {
                        assert_eq!(
                            slot.sequence.load(Ordering::Relaxed),
                            State::complete(number)
                        );
                        let value = slot.payload[0].load(Ordering::Relaxed);
                        let whole = slot
                            .payload
                            .iter()
                            .all(|w| w.load(Ordering::Relaxed) == value);
                        assert!(whole, "a payload of two events");
                        found.kept.push(value);
                    }
                }
            }
        }
        found
    }
}

#[derive(Debug, Default)]
struct Found {
    recorded: u64,
    torn: u64,
    /// Values of the complete events, in the order of the slots.
    kept: Vec<u64>,
}

fn memory(chunks: usize, each: usize) -> Memory<AtomicU64> {
    Memory::new(chunks, each, || AtomicU64::new(0))
}

#[test]
fn the_newest_overwrite_the_oldest() {
    for (chunks, each) in [(8, 1), (4, 2), (2, 4), (1, 8)] {
        let memory = memory(chunks, each);
        let (ring, hold) = (memory.ring(), ChunkLease::none());
        for value in 0..21 {
            ring.push(&hold, &[value; 7]);
        }
        let mut found = memory.read();
        assert_eq!((found.recorded, found.torn), (21, 0));
        found.kept.sort_unstable();
        assert_eq!(
            found.kept,
            (13..21).collect::<Vec<_>>(),
            "{chunks} by {each}"
        );
    }
}

#[test]
fn a_paused_holder_keeps_its_chunk_and_the_others_go_around_it() {
    let memory = memory(4, 4);
    let (ring, paused, busy) = (memory.ring(), ChunkLease::none(), ChunkLease::none());
    ring.push(&paused, &[1000; 7]);
    for value in 0..100 {
        ring.push(&busy, &[value; 7]);
    }
    let found = memory.read();
    assert_eq!(found.recorded, 101);
    assert_eq!(found.kept[0], 1000);
    assert_eq!(found.kept.len(), 1 + 12);
    // It goes on where it was.
    ring.push(&paused, &[1001; 7]);
    assert_eq!(memory.read().kept[..2], [1000, 1001]);
    assert_eq!(memory.read().recorded, 102);
    assert_eq!(memory.dropped.load(Ordering::Relaxed), 0);
}

#[test]
fn with_every_chunk_held_an_event_is_given_up_and_counted() {
    let memory = memory(2, 2);
    let (ring, holds) = (
        memory.ring(),
        [ChunkLease::none(), ChunkLease::none(), ChunkLease::none()],
    );
    for (value, hold) in (0..).zip(&holds) {
        ring.push(hold, &[value; 7]);
    }
    let found = memory.read();
    assert_eq!((found.recorded, found.kept), (3, vec![0, 1]));
    assert_eq!(memory.dropped.load(Ordering::Relaxed), 1);
    ring.close(&holds[0]);
    ring.push(&holds[2], &[7; 7]);
    let found = memory.read();
    assert_eq!((found.recorded, found.kept), (4, vec![7, 1]));
}

#[test]
fn slots_that_were_never_used_are_no_events() {
    let memory = memory(2, 8);
    let ring = memory.ring();
    // Many threads that live for three events each.
    for thread in 0..50 {
        let hold = ChunkLease::none();
        (0..3).for_each(|at| ring.push(&hold, &[3 * thread + at; 7]));
        ring.close(&hold);
        ring.close(&hold);
    }
    let found = memory.read();
    assert_eq!((found.recorded, found.torn), (150, 0));
    assert_eq!(found.kept, [144, 145, 146, 147, 148, 149]);
}

#[test]
fn a_forgotten_chunk_stays_open() {
    let memory = memory(2, 4);
    let (ring, hold) = (memory.ring(), ChunkLease::none());
    ring.push(&hold, &[1; 7]);
    hold.forget();
    ring.close(&hold);
    assert_eq!(
        memory.chunks[0].load(Ordering::Relaxed),
        Chunk::Open(0).word()
    );
    ring.push(&hold, &[2; 7]);
    assert_eq!(memory.read().kept, [1, 2]);
    assert_eq!(ring.reached(), 8);
}

#[test]
fn only_powers_of_two() {
    let fits = |chunks: usize, slots: usize| {
        let memory = memory(1, slots.max(1));
        let words: Vec<_> = (0..chunks).map(|_| AtomicU64::new(0)).collect();
        Ring::new(
            &memory.next,
            &memory.dropped,
            &words,
            &memory.slots[..slots],
        )
        .is_some()
    };
    assert!(!fits(1, 3) && !fits(1, 0) && !fits(0, 4) && !fits(3, 4) && !fits(8, 4));
    assert!(fits(1, 1) && fits(4, 4) && fits(2, 8));
}

#[test]
fn threads_never_mix_their_payloads() {
    const EACH: u64 = if cfg!(miri) { 60 } else { 50_000 };
    let memory = memory(8, 4);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let ring = memory.ring();
            scope.spawn(move || {
                let hold = ChunkLease::none();
                (0..EACH).for_each(|at| ring.push(&hold, &[thread << 32 | at; 7]));
                ring.close(&hold);
            });
        }
    });
    let found = memory.read();
    assert_eq!((found.recorded, found.torn), (4 * EACH, 0));
    let last = |thread: u64| found.kept.contains(&(thread << 32 | (EACH - 1)));
    assert!((0..4).any(last), "{:?}", found.kept);
}

/// A ring without any provision for threads.
struct Naive {
    /// Holder of each chunk, and the content of its slots.
    chunks: Vec<(Option<usize>, Vec<Option<u64>>)>,
    /// Chunk of each holder, and the number of slots that it has used.
    holds: Vec<Option<(usize, usize)>>,
    turn: usize,
    dropped: u64,
}

impl Naive {
    fn push(&mut self, who: usize, value: u64) {
        for _ in 0..self.chunks.len() {
            if self.holds[who].is_some() {
                break;
            }
            let index = self.turn % self.chunks.len();
            self.turn += 1;
            if self.chunks[index].0.is_none() {
                self.chunks[index].0 = Some(who);
                self.holds[who] = Some((index, 0));
            }
        }
        let Some((index, used)) = &mut self.holds[who] else {
            self.dropped += 1;
            return;
        };
        let (index, slots) = (*index, &mut self.chunks[*index].1);
        slots[*used] = Some(value);
        *used += 1;
        if *used == slots.len() {
            self.close(who, index);
        }
    }

    fn close(&mut self, who: usize, index: usize) {
        self.holds[who] = None;
        self.chunks[index].0 = None;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 500 }, ..ProptestConfig::default() })]
    /// For any order of writes and ends of threads: what is kept, and how many events were recorded
    /// and dropped.
    #[test]
    fn the_ring_does_what_a_naive_one_does(
        (chunks, each) in (0..4_u32, 0..4_u32).prop_map(|(chunks, each)| (1 << chunks, 1 << each)),
        actions in prop::collection::vec((0..5_usize, 1..12_usize, prop::bool::weighted(0.2)), 1..60),
    ) {
        let memory = memory(chunks, each);
        let holds: [ChunkLease; 5] = std::array::from_fn(|_| ChunkLease::none());
        let mut naive = Naive {
            chunks: vec![(None, vec![None; each]); chunks],
            holds: vec![None; holds.len()],
            turn: 0,
            dropped: 0,
        };
        let mut events = 0;
        for (who, count, ends) in actions {
            for _ in 0..count {
                memory.ring().push(&holds[who], &[events; 7]);
                naive.push(who, events);
                events += 1;
            }
            if ends {
                memory.ring().close(&holds[who]);
                if let Some((index, _)) = naive.holds[who] {
                    naive.close(who, index);
                }
            }
            let found = memory.read();
            prop_assert_eq!((found.recorded, found.torn), (events, 0));
            let kept: Vec<_> = naive.chunks.iter().flat_map(|(_, slots)| slots).flatten().copied().collect();
            prop_assert_eq!(found.kept, kept);
            prop_assert_eq!(memory.dropped.load(Ordering::Relaxed), naive.dropped);
        }
    }
}

/// Number of further changes that reach the memory before the process ends.
type Life = Rc<RefCell<u64>>;

/// A word of a process that dies: from then on nothing that is written arrives.
struct Mortal {
    word: AtomicU64,
    life: Life,
}

impl Mortal {
    fn lives(&self) -> bool {
        let mut life = self.life.borrow_mut();
        *life = life.saturating_sub(1);
        *life > 0
    }
}

impl Word for Mortal {
    fn load(&self, order: Ordering) -> u64 {
        Word::load(&self.word, order)
    }
    fn store(&self, value: u64, order: Ordering) {
        if self.lives() {
            Word::store(&self.word, value, order);
        }
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        let value = if self.lives() { value } else { 0 };
        Word::fetch_add(&self.word, value, order)
    }
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool {
        // One that took place in a dead process changes nothing that can be seen.
        !self.lives() || Word::swap_if(&self.word, current, new, success)
    }
    fn fence(_: Ordering) {}
}

#[test]
fn a_death_after_any_step_leaves_exact_counts() {
    // Three threads take turns: one pauses early, another ends at times.
    let steps = |at: u64| match at {
        2 => 2,
        at if at % 5 == 0 => 1,
        _ => 0,
    };
    const EVENTS: u64 = if cfg!(miri) { 8 } else { 40 };
    let mut lifetimes = 1_u64..;
    loop {
        let life: Life = Rc::new(RefCell::new(lifetimes.next().unwrap()));
        let memory = Memory::new(4, 4, || Mortal {
            word: AtomicU64::new(0),
            life: Rc::clone(&life),
        });
        let ring = memory.ring();
        let holds = [ChunkLease::none(), ChunkLease::none(), ChunkLease::none()];
        let (mut before, mut during) = (EVENTS, None);
        for at in 0..EVENTS {
            ring.push(&holds[steps(at)], &[at; 7]);
            if *life.borrow() == 0 {
                (before, during) = (at, Some(at));
                break;
            }
            if at % 15 == 10 {
                ring.close(&holds[1]);
                if *life.borrow() == 0 {
                    before = at + 1;
                    break;
                }
            }
        }
        let found = memory.read();
        let in_flight = found.recorded - before;
        assert!(
            in_flight <= u64::from(during.is_some()),
            "{found:?} of {before}"
        );
        assert!(found.torn <= in_flight);
        // Three chunks of four are in use beside the paused one's; nothing newer than a lap is
        // gone.
        let recent = before.saturating_sub(8)..before;
        let held = recent.clone().filter(|at| found.kept.contains(at)).count();
        assert!(held + 4 >= recent.count(), "{found:?} of {before}");
        assert!(found.kept.iter().all(|at| *at < before + in_flight));
        if before > 2 {
            assert!(found.kept.contains(&2), "the paused thread's event");
        }
        if during.is_none() && before == EVENTS {
            break;
        }
    }
    assert!(lifetimes.start > 9 * EVENTS, "it died at every step");
}

/// [`copy_if`] and [`Slot`] agree on what a slot's words are.
#[test]
fn a_slot_is_copied_only_whole() {
    let memory = memory(1, 2);
    let (ring, hold) = (memory.ring(), ChunkLease::none());
    ring.push(&hold, &[5; 7]);
    let words = |slot: &Slot<AtomicU64>| {
        let mut words = vec![AtomicU64::new(Word::load(
            &slot.sequence,
            Ordering::Relaxed,
        ))];
        let payload = slot
            .payload
            .iter()
            .map(|w| Word::load(w, Ordering::Relaxed));
        words.extend(payload.map(AtomicU64::new));
        words
    };
    let words = words(&memory.slots[0]);
    assert_eq!(copy_if::<8, _>(&words, 0).map(|copy| copy[7]), Some(5));
    assert_eq!(copy_if::<8, _>(&words, 1), None);
    Word::store(&words[0], State::writing(0), Ordering::Relaxed);
    assert_eq!(copy_if::<8, _>(&words, 0), None);
}
