//! Every interleaving and every order in which memory may become visible, for a tiny ring.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as Modelled;
use loom::thread;

use super::*;
use crate::explore::explore;
use crate::reader::ring::chunks::{Sound, look};

impl Word for Modelled {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool {
        self.compare_exchange(current, new, success, Ordering::Relaxed)
            .is_ok()
    }
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

/// A ring of chunks of some slots.
pub(crate) struct Memory {
    next: Modelled,
    dropped: Modelled,
    chunks: Vec<Modelled>,
    slots: Vec<Slot<Modelled>>,
}

impl Memory {
    pub(crate) fn new(chunks: usize, each: usize) -> Arc<Memory> {
        let slot = || Slot {
            sequence: Modelled::new(0),
            payload: std::array::from_fn(|_| Modelled::new(0)),
        };
        Arc::new(Memory {
            next: Modelled::new(0),
            dropped: Modelled::new(0),
            chunks: (0..chunks).map(|_| Modelled::new(0)).collect(),
            slots: (0..chunks * each).map(|_| slot()).collect(),
        })
    }

    pub(crate) fn ring(&self) -> Ring<'_, Modelled> {
        Ring::new(&self.next, &self.dropped, &self.chunks, &self.slots).unwrap()
    }

    /// Looks at one chunk as the reader does: events said, complete events that were read whole.
    fn look(&self, chunk: usize) -> (u64, u64) {
        let each = self.slots.len() / self.chunks.len();
        let slots = &self.slots[chunk * each..][..each];
        let mut states = vec![State::Empty; each];
        let state =
            |index: u64| State::decode(slots[index as usize].sequence.load(Ordering::Acquire));
        let word = look(Some(&self.chunks[chunk]), &mut states, state);
        let sound = Sound::judge(word, &mut states, u64::MAX);
        assert_eq!(
            (sound.said, sound.foreign),
            (Some(sound.shown), 0),
            "{word:?} {states:?}"
        );
        let mut whole = 0;
        for (slot, state) in slots.iter().zip(states) {
            let State::Complete(number) = state else {
                continue;
            };
            // The first and the last word of the payload stand for all.
            let copy = || [0, 6].map(|word| slot.payload[word].load(Ordering::Relaxed));
            if let Some(copy) = while_held(&slot.sequence, number, copy) {
                assert_eq!(copy[0], copy[1], "a payload of two events");
                assert_ne!(copy[0], 0, "a payload of none");
                whole += 1;
            }
        }
        (sound.shown, whole)
    }

    /// Once all is quiet: what was recorded and dropped.
    fn recorded(&self) -> u64 {
        let shown: u64 = (0..self.chunks.len()).map(|chunk| self.look(chunk).0).sum();
        shown + self.dropped.load(Ordering::Relaxed)
    }
}

/// A thread that records some events and ends.
fn writer(memory: &Arc<Memory>, name: u64, events: u64) -> thread::JoinHandle<()> {
    let memory = Arc::clone(memory);
    thread::spawn(move || {
        let hold = ChunkLease::none();
        for event in 0..events {
            memory.ring().push(&hold, &[name + event; 7]);
        }
        memory.ring().close(&hold);
    })
}

#[test]
fn two_writers_lap_each_other() {
    explore(3, || {
        let memory = Memory::new(2, 1);
        let writers = [writer(&memory, 10, 2), writer(&memory, 20, 2)];
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        assert_eq!(memory.recorded(), 4);
        let closed = |word: &Modelled| Word::load(word, Ordering::Relaxed) & 1 == 0;
        assert!(memory.chunks.iter().all(closed));
    });
}

#[test]
fn two_writers_want_the_same_chunk() {
    explore(3, || {
        let memory = Memory::new(1, 2);
        let writers = [writer(&memory, 10, 1), writer(&memory, 20, 2)];
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        assert_eq!(memory.recorded(), 3);
    });
}

#[test]
fn a_reader_sees_whole_events_and_exact_counts_at_every_moment() {
    explore(2, || {
        let memory = Memory::new(1, 2);
        let writer = writer(&memory, 10, 3);
        let (shown, whole) = memory.look(0);
        assert!(shown <= 3 && whole <= shown);
        writer.join().unwrap();
        assert_eq!(memory.look(0), (3, 2));
    });
}
