//! The event ring: many writers, no lock, the newest events overwrite the oldest.
//!
//! The ring is divided into chunks of a few slots. A thread takes the next chunk that no thread
//! holds, by one fetch-and-add and one compare-and-swap. It then fills the slots in order with
//! plain stores. A slot's sequence word is odd while it is written, and only the holder of its
//! chunk writes it. A full chunk is closed at once. A thread that pauses keeps its chunk; the other
//! threads skip it.
//!
//! Each chunk counts the events ever recorded in it. Its word and the sequence words of its slots
//! together define, at every instant, the number of events and which of them are left. So the
//! counts stay exact whenever the process is killed, and slots that were never used are no events.

use std::cell::Cell;
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::layout::{Chunk, Slot as State};
use super::space::Room;

#[cfg(all(test, not(miri)))]
pub(crate) mod model;
#[cfg(test)]
mod tests;

/// Atomic `u64` of which the ring is made; a trait so that a model checker's type can replace it.
pub trait Word {
    /// Loads the value, like [`AtomicU64::load`].
    fn load(&self, order: Ordering) -> u64;
    /// Stores a value, like [`AtomicU64::store`].
    fn store(&self, value: u64, order: Ordering);
    /// Adds to the value, like [`AtomicU64::fetch_add`].
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    /// Exchanges the value like [`AtomicU64::compare_exchange`]; true if it took place.
    fn swap_if(&self, current: u64, new: u64, success: Ordering) -> bool;
    /// Orders accesses, like [`std::sync::atomic::fence`].
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

impl<W: Word> Slot<W> {
    /// Returns the state of the slot. Slots read after this one are at least as new.
    #[inline]
    pub(crate) fn state(&self) -> State {
        State::decode(self.sequence.load(Ordering::Acquire))
    }

    /// Returns a copy of the payload, if the slot held the event of this number before and after
    /// copying.
    #[inline]
    pub(crate) fn copy(&self, number: u64) -> Option<[u64; 7]> {
        while_held(&self.sequence, number, || {
            let mut payload = [0; 7];
            for (to, from) in payload.iter_mut().zip(&self.payload) {
                *to = from.load(Ordering::Relaxed);
            }
            payload
        })
    }
}

/// Returns the result of `copy`, if a slot with this sequence word held the event of this number
/// before and after.
#[inline]
pub(crate) fn while_held<W: Word, T>(
    sequence: &W,
    number: u64,
    copy: impl FnOnce() -> T,
) -> Option<T> {
    // Acquire: the payload is at least as new.
    if State::decode(sequence.load(Ordering::Acquire)) != State::Complete(number) {
        return None;
    }
    let copied = copy();
    // If a word had been of a later event, its slot would now be seen begun.
    W::fence(Ordering::Acquire);
    let after = State::decode(sequence.load(Ordering::Relaxed));
    (after == State::Complete(number)).then_some(copied)
}

#[cfg(test)]
impl Slot<AtomicU64> {
    pub(crate) fn empty() -> Slot<AtomicU64> {
        Slot {
            sequence: AtomicU64::new(0),
            payload: Default::default(),
        }
    }

    pub(crate) fn set(&self, sequence: u64, payload: [u64; 7]) {
        for (word, value) in self.payload.iter().zip(payload) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence.store(sequence, Ordering::Release);
    }
}

/// Number of slots from the one being written to the one that is prefetched.
const AHEAD: usize = 4;

/// Number of chunks that are tried before an event is dropped.
const TRIES: usize = 1024;

/// Number of chunks that get space at once, when a thread reaches one without: 64 KiB of slots.
const STEP: usize = 32;

/// Prefetches the first cache line of a value. This is a hint without an observable effect.
#[inline]
pub fn prefetch<T>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is in every x86-64 processor and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(what).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}

/// Chunk that one thread holds in a ring, if it holds one, and its progress in the chunk.
#[derive(Debug)]
pub struct ChunkLease {
    /// Index of the next slot to write.
    next: Cell<usize>,
    /// Index of the first slot after the chunk; 0, like `next`, if no chunk is held.
    end: Cell<usize>,
    /// Difference of the number of an event and its slot's index, modulo 2^64.
    offset: Cell<u64>,
}

impl ChunkLease {
    /// Returns a lease without a chunk.
    pub const fn none() -> ChunkLease {
        ChunkLease {
            next: Cell::new(0),
            end: Cell::new(0),
            offset: Cell::new(0),
        }
    }

    /// Drops the chunk without closing it: for a ring that no longer exists or is of another
    /// process.
    pub fn forget(&self) {
        self.next.set(0);
        self.end.set(0);
    }
}

/// A view of the counters, chunks and slots of a ring.
#[derive(Debug)]
pub struct Ring<'a, W> {
    /// Number of attempts to take a chunk.
    next: &'a W,
    /// Number of events dropped because no chunk was free.
    dropped: &'a W,
    chunks: &'a [W],
    slots: &'a [Slot<W>],
    /// Number of slots of a chunk.
    each: usize,
    /// Room of the words of the chunks, and of their slots.
    room: (Room, Room),
    /// Number of chunks, from the first on, that have space.
    ready: AtomicUsize,
    /// True if there was no space for more chunks: the ring wraps within the chunks that have
    /// space.
    is_short: AtomicBool,
}

impl<'a, W: Word> Ring<'a, W> {
    /// Returns a ring over as many slots as the chunks have together. `None` unless both numbers
    /// are powers of two.
    pub fn new(
        next: &'a W,
        dropped: &'a W,
        chunks: &'a [W],
        slots: &'a [Slot<W>],
    ) -> Option<Ring<'a, W>> {
        let fits = slots.len().is_power_of_two()
            && chunks.len().is_power_of_two()
            && chunks.len() <= slots.len();
        fits.then(|| Ring {
            next,
            dropped,
            chunks,
            slots,
            each: slots.len() / chunks.len(),
            room: Default::default(),
            ready: AtomicUsize::new(chunks.len()),
            is_short: AtomicBool::new(false),
        })
    }

    /// Places the ring in a file that grows, with this room for the words of the chunks and for the
    /// slots. No chunk has space yet.
    pub fn within(self, chunks: Room, slots: Room) -> Ring<'a, W> {
        Ring {
            room: (chunks, slots),
            ready: AtomicUsize::new(0),
            ..self
        }
    }

    /// Returns the number of chunks, from the first on, that have space.
    pub(crate) fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    /// Takes space for the first chunks, for at least `slots` slots. Off the hot path. `false` if
    /// there is no space.
    pub fn reserve(&self, slots: usize) -> bool {
        self.grow(slots.div_ceil(self.each).min(self.chunks.len()))
    }

    /// True if the ring wraps before its end, because there is no space for the other chunks.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Takes space until at least `wanted` chunks have it.
    #[cold]
    fn grow(&self, wanted: usize) -> bool {
        let from = self.ready.load(Ordering::Relaxed);
        if wanted <= from {
            return true;
        }
        let to = wanted.next_multiple_of(STEP).min(self.chunks.len());
        let chunk = self.each * size_of::<Slot<W>>();
        let (chunks, slots) = &self.room;
        // Words that share a page with earlier ones have space already; that costs nothing.
        let grown = chunks.reserve(from * 8, (to - from) * 8)
            && slots.reserve(from * chunk, (to - from) * chunk);
        if grown {
            // Release: the space came before. Another thread may have taken more.
            self.ready.fetch_max(to, Ordering::Release);
        }
        self.is_short.store(!grown, Ordering::Relaxed);
        grown
    }

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of slots that threads have reached so far, laps included.
    pub fn reached(&self) -> u64 {
        self.next
            .load(Ordering::Relaxed)
            .saturating_mul(self.each as u64)
    }

    /// Returns the number of attempts to take a chunk so far. Turn t is for chunk t modulo their
    /// count.
    pub(crate) fn turns(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Returns the number of events dropped so far.
    pub(crate) fn given_up(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of chunks, a power of two.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the word and the slots of a chunk.
    #[inline]
    pub(crate) fn chunk(&self, index: usize) -> Option<(&'a W, &'a [Slot<W>])> {
        let first = index.checked_mul(self.each)?;
        let slots = self.slots.get(first..first.checked_add(self.each)?)?;
        Some((self.chunks.get(index)?, slots))
    }

    /// Writes one event. Wait-free, and without a locked instruction within a chunk.
    ///
    /// A thread passes the same `hold` each time, and no other thread passes it.
    #[inline]
    pub fn push(&self, hold: &ChunkLease, payload: &[u64; 7]) {
        if hold.next.get() == hold.end.get() && !self.take(hold) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let at = hold.next.get();
        hold.next.set(at + 1);
        let Some(slot) = self.slots.get(at) else {
            return;
        };
        // The slots lie in a file larger than the caches: one is fetched while the slots before it
        // are written. None beyond the chunk is fetched, where another thread may write.
        let ahead = at + AHEAD;
        if ahead < hold.end.get()
            && let Some(slot) = self.slots.get(ahead)
        {
            prefetch(slot);
        }
        let number = (at as u64).wrapping_add(hold.offset.get());
        // Release: a reader that sees this slot begun also sees the earlier ones complete and the
        // chunk open. It finds no gap between them.
        slot.sequence
            .store(State::writing(number), Ordering::Release);
        // A reader that sees any of the payload must also see that the slot is being written.
        W::fence(Ordering::Release);
        for (word, value) in slot.payload.iter().zip(payload) {
            word.store(*value, Ordering::Relaxed);
        }
        // Release: a reader that sees the slot complete sees its payload.
        slot.sequence
            .store(State::complete(number), Ordering::Release);
        if at + 1 == hold.end.get() {
            self.close(hold);
        }
    }

    /// Takes the next chunk that no thread holds; `false` if there is none among those tried.
    #[cold]
    fn take(&self, hold: &ChunkLease) -> bool {
        if self.room.1.is_lost() {
            // An event written now would be kept nowhere.
            return false;
        }
        for _ in 0..self.chunks.len().min(TRIES) {
            // Only the turn must be unique to this thread.
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            let index = (turn & (self.chunks.len() as u64 - 1)) as usize;
            let Some(word) = self.chunks.get(index) else {
                return false;
            };
            if index >= self.ready.load(Ordering::Relaxed) && !self.grow(index + 1) {
                self.go_round(turn);
                continue;
            }
            let seen = word.load(Ordering::Relaxed);
            // A thread that paused, or one that ended without closing it, may hold it since an
            // earlier lap.
            let Chunk::Closed(events) = Chunk::decode(seen) else {
                continue;
            };
            // Acquire: this thread's writes to the slots come after the last holder's. Release: a
            // reader that sees the chunk open also sees this turn counted.
            if !word.swap_if(seen, Chunk::Open(events).word(), Ordering::AcqRel) {
                continue;
            }
            let first = index * self.each;
            hold.next.set(first);
            hold.end.set(first + self.each);
            hold.offset.set(events.wrapping_sub(first as u64));
            let soon = first..first + self.each.min(AHEAD);
            self.slots
                .get(soon)
                .unwrap_or_default()
                .iter()
                .for_each(prefetch);
            return true;
        }
        false
    }

    /// Begins the next lap, because there is no space for the chunk of a turn. All turns up to it
    /// count as taken.
    #[cold]
    fn go_round(&self, turn: u64) {
        let lap = (turn | (self.chunks.len() as u64 - 1)).wrapping_add(1);
        let next = self.next.load(Ordering::Relaxed);
        if next < lap {
            // If another thread took a turn meanwhile, it or this one tries again.
            self.next.swap_if(next, lap, Ordering::Relaxed);
        }
    }

    /// Closes the held chunk, if there is one. Another thread may then take it.
    pub fn close(&self, hold: &ChunkLease) {
        let (next, end) = (hold.next.get(), hold.end.get());
        let Some(last) = end.checked_sub(1) else {
            return;
        };
        hold.forget();
        if let Some(word) = self.chunks.get(last / self.each) {
            let events = (next as u64).wrapping_add(hold.offset.get());
            // Release: a thread that takes the chunk, or a reader that sees it closed, sees all
            // writes to its slots.
            word.store(Chunk::Closed(events).word(), Ordering::Release);
        }
    }
}
