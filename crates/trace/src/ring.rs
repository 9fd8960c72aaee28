//! The event ring: many writers, no lock, the newest events overwrite the oldest.
//!
//! The ring is cut into chunks of a few slots. A thread takes the next chunk that no thread holds, by one fetch-and-add
//! and one compare-and-swap, and then fills its slots in order with plain stores: a slot is odd while it is written,
//! and only the holder of its chunk writes it. A full chunk is closed at once. A thread that pauses keeps its chunk;
//! the others go around it.
//!
//! Each chunk counts the events that were ever recorded in it. Its word and the sequence words of its
//! slots say together, at every instant, how many there were and which of them are left: the counts
//! stay exact whenever the process dies, and slots that were never used are no events.

use std::cell::Cell;
use std::mem::size_of;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::layout::{Chunk, Slot as State};
use super::space::Room;

#[cfg(all(test, not(miri)))]
pub(crate) mod model;
#[cfg(test)]
mod tests;

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

impl<W: Word> Slot<W> {
    /// What the slot says of itself. Slots looked at after this one are at least as new.
    #[inline]
    pub(crate) fn state(&self) -> State {
        State::decode(self.sequence.load(Ordering::Acquire))
    }

    /// A copy of the payload, if the slot held the event of this number before and after copying.
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

/// What `copy` gives, if a slot with this sequence word held the event of this number before and after.
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
    // Had a word been of a later event, its slot would now be seen begun.
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

/// How many slots ahead of the one being written the next is fetched.
const AHEAD: usize = 4;

/// How many chunks are tried before an event is given up.
const TRIES: usize = 1024;

/// Chunks that get space at once, when a thread comes upon one without: 64 KiB of slots.
const STEP: usize = 32;

/// Asks for the cache line where something begins. A hint: it has no effect that a program could see.
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

/// The chunk that one thread holds in a ring, if it holds one, and how far it has come in it.
#[derive(Debug)]
pub struct ChunkLease {
    /// Index of the next slot to write.
    next: Cell<usize>,
    /// Index of the first slot after the chunk; 0, as `next` then is: no chunk is held.
    end: Cell<usize>,
    /// What makes a slot's index the number of its event, modulo 2^64.
    offset: Cell<u64>,
}

impl ChunkLease {
    /// Holds no chunk.
    pub const fn none() -> ChunkLease {
        ChunkLease {
            next: Cell::new(0),
            end: Cell::new(0),
            offset: Cell::new(0),
        }
    }

    /// Lets go of the chunk without closing it: for a ring that is gone or no longer ours.
    pub fn forget(&self) {
        self.next.set(0);
        self.end.set(0);
    }
}

/// A view of the counters, chunks and slots of a ring.
#[derive(Debug)]
pub struct Ring<'a, W> {
    /// How often a thread went for a chunk.
    next: &'a W,
    /// Events given up because no chunk was to be had.
    dropped: &'a W,
    chunks: &'a [W],
    slots: &'a [Slot<W>],
    /// Slots of a chunk.
    each: usize,
    /// Of the words of the chunks, and of their slots.
    room: (Room, Room),
    /// Chunks that have space, the first of them.
    ready: AtomicUsize,
    /// There was no space for more: the ring goes round in what it has.
    is_short: AtomicBool,
}

impl<'a, W: Word> Ring<'a, W> {
    /// A ring over as many slots as chunks have together; both are powers of two, otherwise `None`.
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

    /// In a file that grows, where the words of the chunks and the slots have this room. No chunk has space yet.
    pub fn within(self, chunks: Room, slots: Room) -> Ring<'a, W> {
        Ring {
            room: (chunks, slots),
            ready: AtomicUsize::new(0),
            ..self
        }
    }

    /// The number of chunks, from the first on, that have space.
    pub(crate) fn ready(&self) -> usize {
        self.ready.load(Ordering::Acquire)
    }

    /// Takes space for the first chunks, for at least `slots` slots. Off the hot path. `false`: there is no space.
    pub fn reserve(&self, slots: usize) -> bool {
        self.grow(slots.div_ceil(self.each).min(self.chunks.len()))
    }

    /// Whether the ring goes round in less than all of it, for want of space.
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
        // Of the words, those that may share a page with earlier ones have it already: that costs nothing.
        let grown = chunks.reserve(from * 8, (to - from) * 8)
            && slots.reserve(from * chunk, (to - from) * chunk);
        if grown {
            // Release: the space came before. Another thread may have taken more.
            self.ready.fetch_max(to, Ordering::Release);
        }
        self.is_short.store(!grown, Ordering::Relaxed);
        grown
    }

    /// Slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Slots that threads have reached so far, laps included.
    pub fn reached(&self) -> u64 {
        self.next
            .load(Ordering::Relaxed)
            .saturating_mul(self.each as u64)
    }

    /// How often a thread went for a chunk so far: turn t is for chunk t modulo their count.
    pub(crate) fn turns(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Events given up so far.
    pub(crate) fn given_up(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many chunks there are: a power of two.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The word and the slots of a chunk.
    #[inline]
    pub(crate) fn chunk(&self, index: usize) -> Option<(&'a W, &'a [Slot<W>])> {
        let first = index.checked_mul(self.each)?;
        let slots = self.slots.get(first..first.checked_add(self.each)?)?;
        Some((self.chunks.get(index)?, slots))
    }

    /// Writes one event. Wait-free, and within a chunk without a locked instruction.
    ///
    /// A thread passes the same `hold` each time, and one that no other thread passes.
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
        // The slots lie in a file larger than the caches: fetch one while those before it are
        // written. Not beyond the chunk, where another thread may be at work.
        let ahead = at + AHEAD;
        if ahead < hold.end.get()
            && let Some(slot) = self.slots.get(ahead)
        {
            prefetch(slot);
        }
        let number = (at as u64).wrapping_add(hold.offset.get());
        // Release: a reader that sees this slot begun also sees those before it complete and the
        // chunk open, and finds no gap between them.
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
            // What would be written is kept nowhere.
            return false;
        }
        for _ in 0..self.chunks.len().min(TRIES) {
            // Only the number itself must be this thread's alone.
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
            // A thread that paused, or one that died, may hold it since an earlier lap.
            let Chunk::Closed(events) = Chunk::decode(seen) else {
                continue;
            };
            // Acquire: what we write into the slots comes after what the last holder wrote there.
            // Release: a reader that sees the chunk open also sees our turn at it counted.
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

    /// There is no space for the chunk of a turn: the next lap begins. All turns up to it count as taken.
    #[cold]
    fn go_round(&self, turn: u64) {
        let lap = (turn | (self.chunks.len() as u64 - 1)).wrapping_add(1);
        let next = self.next.load(Ordering::Relaxed);
        if next < lap {
            // If another thread took a turn meanwhile, it or this one tries again.
            self.next.swap_if(next, lap, Ordering::Relaxed);
        }
    }

    /// Closes the chunk that is held, if one is: the next thread that comes by may take it.
    pub fn close(&self, hold: &ChunkLease) {
        let (next, end) = (hold.next.get(), hold.end.get());
        let Some(last) = end.checked_sub(1) else {
            return;
        };
        hold.forget();
        if let Some(word) = self.chunks.get(last / self.each) {
            let events = (next as u64).wrapping_add(hold.offset.get());
            // Release: a thread that takes the chunk, or a reader that sees it closed, sees its slots as we left them.
            word.store(Chunk::Closed(events).word(), Ordering::Release);
        }
    }
}
