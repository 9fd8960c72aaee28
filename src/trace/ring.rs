//! The event ring: many writers, no lock, the newest events overwrite the oldest.
//!
//! A writer takes a ticket, claims the ticket's slot by a compare-and-swap on its sequence word
//! (odd while being written), stores the payload, and publishes with a release store (even). A
//! writer that was stalled for a whole lap finds its slot taken by a newer event, or a newer one
//! finds it still being written: either way one event is given up, and no slot is ever written by
//! two. From the tickets handed out and the slots, a reader derives how many events were lost and torn.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::Slot as State;

/// The atomic `u64` that the ring is made of; a trait so that a model checker's can take its place.
pub trait Word {
    /// As [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// As [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// As [`AtomicU64::fetch_add`].
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// As [`AtomicU64::compare_exchange`], saying only whether it took place.
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool;
    /// As [`std::sync::atomic::fence`].
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.fetch_add(value, order)
    }
    #[inline]
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool {
        self.compare_exchange(current, new, success, Ordering::Relaxed)
            .is_ok()
    }
    #[inline]
    fn fence(order: Ordering) {
        std::sync::atomic::fence(order);
    }
}

/// One slot as it lies in the file: the sequence word and seven words of payload.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot<W> {
    sequence: W,
    payload: [W; 7],
}

/// How many slots ahead of the one being written the next is fetched.
const AHEAD: usize = 8;

/// Asks for a slot's cache line. A hint: it has no effect that a program could see.
#[inline]
fn prefetch<W>(slot: &Slot<W>) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is in every x86-64 processor and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(slot).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = slot;
}

/// A view of the slots and counters of a ring.
#[derive(Debug)]
pub struct Ring<'a, W> {
    /// Next ticket.
    next: &'a W,
    /// Events given up because their slot was busy.
    dropped: &'a W,
    slots: &'a [Slot<W>],
}

impl<'a, W: Word> Ring<'a, W> {
    /// A ring over slots whose number is a power of two; `None` otherwise.
    pub fn new(next: &'a W, dropped: &'a W, slots: &'a [Slot<W>]) -> Option<Ring<'a, W>> {
        slots.len().is_power_of_two().then_some(Ring {
            next,
            dropped,
            slots,
        })
    }

    /// Slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Tickets handed out so far.
    pub fn recorded(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Writes one event. Wait-free: a fixed number of steps, whatever the others do.
    #[inline]
    pub fn push(&self, payload: &[u64; 7]) {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let index = (ticket & (self.slots.len() as u64 - 1)) as usize;
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        // The slots lie in a file larger than the caches: fetch one while the next few are written.
        let ahead = (index + AHEAD) & (self.slots.len() - 1);
        if let Some(slot) = self.slots.get(ahead) {
            prefetch(slot);
        }
        let seen = slot.sequence.load(Ordering::Relaxed);
        let busy = seen & 1 == 1;
        let overtaken = seen > State::complete(ticket);
        if busy
            || overtaken
            || !slot
                .sequence
                .swap_if(seen, State::writing(ticket), Ordering::Acquire)
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // A reader that sees any of the payload must also see that the slot is being written.
        W::fence(Ordering::Release);
        for (word, value) in slot.payload.iter().zip(payload) {
            word.store(*value, Ordering::Relaxed);
        }
        slot.sequence
            .store(State::complete(ticket), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(count: usize) -> Vec<Slot<AtomicU64>> {
        (0..count)
            .map(|_| Slot {
                sequence: AtomicU64::new(0),
                payload: Default::default(),
            })
            .collect()
    }

    fn state(slot: &Slot<AtomicU64>) -> State {
        State::decode(slot.sequence.load(Ordering::Relaxed))
    }

    #[test]
    fn the_newest_overwrite_the_oldest() {
        let (next, dropped, slots) = (AtomicU64::new(0), AtomicU64::new(0), slots(4));
        let ring = Ring::new(&next, &dropped, &slots).unwrap();
        for value in 0..10 {
            ring.push(&[value; 7]);
        }
        assert_eq!(ring.recorded(), 10);
        let held: Vec<_> = slots.iter().map(state).collect();
        assert_eq!(held, [8, 9, 6, 7].map(State::Complete));
        assert_eq!(slots[1].payload[6].load(Ordering::Relaxed), 9);
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_slot_that_is_being_written_is_not_written_by_a_second() {
        let (next, dropped, slots) = (AtomicU64::new(4), AtomicU64::new(0), slots(4));
        slots[0]
            .sequence
            .store(State::writing(0), Ordering::Relaxed);
        Ring::new(&next, &dropped, &slots).unwrap().push(&[1; 7]);
        assert_eq!(state(&slots[0]), State::Writing(0));
        assert_eq!(slots[0].payload[0].load(Ordering::Relaxed), 0);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_writer_that_was_overtaken_leaves_the_newer_event() {
        let (next, dropped, slots) = (AtomicU64::new(0), AtomicU64::new(0), slots(4));
        slots[0]
            .sequence
            .store(State::complete(4), Ordering::Relaxed);
        Ring::new(&next, &dropped, &slots).unwrap().push(&[1; 7]);
        assert_eq!(state(&slots[0]), State::Complete(4));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn only_powers_of_two() {
        let (next, dropped) = (AtomicU64::new(0), AtomicU64::new(0));
        assert!(Ring::new(&next, &dropped, &slots(3)).is_none());
        assert!(Ring::new(&next, &dropped, &slots(0)).is_none());
        assert!(Ring::new(&next, &dropped, &slots(1)).is_some());
    }

    #[test]
    fn threads_never_mix_their_payloads() {
        let (next, dropped, slots) = (AtomicU64::new(0), AtomicU64::new(0), slots(8));
        let ring = Ring::new(&next, &dropped, &slots).unwrap();
        const EACH: u64 = if cfg!(miri) { 50 } else { 50_000 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let ring = &ring;
                scope.spawn(move || (0..EACH).for_each(|at| ring.push(&[thread << 32 | at; 7])));
            }
        });
        assert_eq!(ring.recorded(), 4 * EACH);
        for slot in &slots {
            assert!(matches!(state(slot), State::Complete(_)));
            let first = slot.payload[0].load(Ordering::Relaxed);
            assert!(
                slot.payload
                    .iter()
                    .all(|word| word.load(Ordering::Relaxed) == first)
            );
        }
    }
}
