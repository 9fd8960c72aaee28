//! Follower of the ring within the writing process: gives every event once, in the order of time.
//!
//! The recording threads do no work for it. Their events are found by the turns that they took:
//! each turn since the last poll names a chunk. Two sorts of chunks are read again at each poll:
//!
//! - open chunks, because their holders may continue after any pause;
//! - chunks for which a thread took a turn, but which it has not opened yet.
//!
//! Once in a lap all chunks are read, for events that the turns may have missed.
//!
//! For each chunk the number of the next event to read is kept. Numbers have no gaps, so events
//! overwritten before they were read are counted exactly.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::clock::ClockSource;
use super::event::Event;
use super::kind::Kind;
use super::layout::{Chunk, Slot as State};
use super::ring::{Ring, Slot, Word};
use super::writer::{Mapped, Writer};

/// Number of times a chunk is read again, if it gets another holder meanwhile.
const LOOKS: usize = 8;

/// Chunks read before their events are handed on, which bounds the memory: 64 Ki events.
const STEP: u64 = 4096;

/// Events that there is always memory for: 72 KiB. More memory is freed when few events are
/// waiting.
const KEPT: usize = 1024;

/// An event that was read from the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tailed {
    /// The record's words after its sequence word, the ticks first.
    pub(crate) words: [u64; 7],
    /// Number of the event among the events of its chunk.
    pub(crate) number: u64,
    /// Index of its chunk in the ring.
    pub(crate) chunk: u32,
}

impl Tailed {
    /// Returns the time of its recording, ticks.
    pub fn ticks(&self) -> u64 {
        self.words.first().copied().unwrap_or(0)
    }

    /// Returns the recorded event.
    pub fn event(&self) -> Event {
        Event::from_words(self.words).1
    }

    /// Returns the key of its place in order. At the same instant memory is freed before it is
    /// allocated again.
    pub(crate) fn rank(&self) -> (u64, bool) {
        (self.ticks(), takes(Kind::from_number(self.words[1] as u8)))
    }
}

/// True if an event of this kind comes after frees and releases of the same instant.
pub(crate) fn takes(kind: Kind) -> bool {
    !matches!(kind, Kind::Free | Kind::TensorFree | Kind::Release)
}

/// Numbers of events that were recorded and never handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Events overwritten before they were read.
    pub overwritten: u64,
    /// Events dropped by the threads that would have recorded them.
    pub given_up: u64,
}

impl Missed {
    /// Returns the number of all missed events.
    pub fn total(self) -> u64 {
        self.overwritten.saturating_add(self.given_up)
    }
}

/// Follows the ring of a [`Writer`] of the same process.
///
/// ```
/// use gpushim_trace::{Class, Event, Kind, Tail, Writer, WriterOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.trace");
/// let writer = Writer::create(&path, &WriterOptions::default())?;
/// let mut tail = Tail::new(&writer);
/// writer.record(&Event { size: 512, ..Event::new(Kind::Alloc, Class::Device) });
///
/// let mut sizes = Vec::new();
/// tail.flush(&mut |events| sizes.extend(events.iter().map(|one| one.event().size)));
/// assert_eq!(sizes, [512]);
/// assert_eq!(tail.missed().total(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tail {
    mapped: Arc<Mapped>,
    clock: ClockSource,
    follower: Follower,
}

impl Tail {
    /// Returns a tail that begins with the first event ever recorded. Two tails are independent.
    pub fn new(writer: &Writer) -> Tail {
        let (mapped, clock) = writer.followed();
        let follower = Follower::new(mapped.ring());
        Tail {
            mapped,
            clock,
            follower,
        }
    }

    /// Hands on the events recorded since the last poll, except events younger than `hold_back`
    /// ticks. These follow at the next poll, with events of the same time that other threads have
    /// published by then. The slices are in order of time. Each begins where the previous one
    /// ended, unless a thread took longer than `hold_back` to publish an event.
    ///
    /// In a forked child nothing is read.
    pub fn poll(&mut self, hold_back: u64, sink: &mut dyn FnMut(&[Tailed])) {
        if self.mapped.is_ours() {
            // Read before the ring: the turn of every older event is taken.
            let horizon = self.clock.now().saturating_sub(hold_back);
            let ring = self.mapped.ring();
            self.follower.poll(ring, horizon, hold_back, sink);
        }
    }

    /// Hands on all recorded events, however young.
    pub fn flush(&mut self, sink: &mut dyn FnMut(&[Tailed])) {
        if self.mapped.is_ours() {
            self.follower.flush(self.mapped.ring(), sink);
        }
    }

    /// Returns the numbers of events missed so far.
    pub fn missed(&self) -> Missed {
        Missed {
            overwritten: self.follower.overwritten,
            given_up: self.mapped.ring().given_up(),
        }
    }

    /// Returns the number of slots of the ring, and of slots that threads have reached so far, laps
    /// included.
    pub fn progress(&self) -> (u64, u64) {
        let ring = self.mapped.ring();
        (ring.capacity() as u64, ring.reached())
    }

    /// Returns the number of turns of the ring that were read.
    pub(crate) fn turns(&self) -> u64 {
        self.follower.turns
    }

    /// Returns the current ticks of the records' clock.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    pub(crate) fn mapped(&self) -> &Arc<Mapped> {
        &self.mapped
    }
}

/// Reason for reading a chunk again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    No,
    /// A thread holds the chunk.
    Open,
    /// A thread took a turn for it, and was not yet seen to open it.
    Expected,
}

/// Result of reading a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkRead {
    Nothing,
    Events,
    Open,
}

/// Progress of a follower in a ring.
#[derive(Debug)]
pub(crate) struct Follower {
    /// For each chunk reached: the number of the next event to read, and the reason to read again.
    chunks: Vec<(u64, Watch)>,
    /// Number of chunks of the ring.
    count: usize,
    /// Indexes of the chunks to read again.
    watched: Vec<u32>,
    /// Number of turns whose chunks were read, and the number when all chunks were last read.
    turns: u64,
    swept: u64,
    /// Events that are too young to hand on, and events being read.
    waiting: Vec<Tailed>,
    pub(crate) overwritten: u64,
}

impl Follower {
    pub(crate) fn new<W: Word>(ring: &Ring<'_, W>) -> Follower {
        Follower {
            chunks: Vec::new(),
            count: ring.chunks(),
            watched: Vec::new(),
            turns: 0,
            swept: 0,
            waiting: Vec::new(),
            overwritten: 0,
        }
    }

    /// Polls like [`Tail::poll`], up to the ticks of `horizon`.
    pub(crate) fn poll<W: Word>(
        &mut self,
        ring: &Ring<'_, W>,
        horizon: u64,
        hold_back: u64,
        sink: &mut dyn FnMut(&[Tailed]),
    ) {
        self.look_again(ring);
        let count = self.count as u64;
        let turns = ring.turns();
        // One read is enough for several turns of the same chunk.
        let mut turn = self.turns.max(turns.saturating_sub(count));
        while turn < turns {
            let step = turns.min(turn.saturating_add(STEP));
            let mut reached = None;
            for turn in turn..step {
                let from = self.waiting.len();
                self.turn(ring, (turn & (count - 1)) as usize);
                let read = self.waiting.get(from..).unwrap_or_default();
                reached = read.iter().map(Tailed::ticks).min().or(reached);
            }
            turn = step;
            // The following chunks are not older than the last ones, as far as their turns tell.
            if let Some(ticks) = reached.filter(|_| turn < turns) {
                self.give(horizon.min(ticks.saturating_sub(hold_back)), sink);
            }
        }
        self.turns = turns;
        if turns.saturating_sub(self.swept) >= count {
            self.sweep(ring);
        }
        self.give(horizon, sink);
    }

    /// Flushes like [`Tail::flush`].
    pub(crate) fn flush<W: Word>(&mut self, ring: &Ring<'_, W>, sink: &mut dyn FnMut(&[Tailed])) {
        self.poll(ring, 0, 0, sink);
        self.sweep(ring);
        self.give(u64::MAX, sink);
    }

    /// Hands on the events that are not younger than the horizon.
    fn give(&mut self, horizon: u64, sink: &mut dyn FnMut(&[Tailed])) {
        // Each chunk is in order already, and mostly the chunks are in order among themselves.
        self.waiting.sort_by_key(Tailed::rank);
        let due = self.waiting.partition_point(|one| one.ticks() <= horizon);
        if let Some(events) = self.waiting.get(..due).filter(|events| !events.is_empty()) {
            sink(events);
            self.waiting.drain(..due);
        }
        if self.waiting.capacity() > KEPT && self.waiting.len() < KEPT / 16 {
            self.waiting.shrink_to(KEPT);
        }
    }

    fn look_again<W: Word>(&mut self, ring: &Ring<'_, W>) {
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain(|index| {
            let found = self.read(ring, *index as usize);
            let Some((_, watch)) = self.chunks.get_mut(*index as usize) else {
                return false;
            };
            *watch = match (found, *watch) {
                (ChunkRead::Open, _) => Watch::Open,
                (ChunkRead::Nothing, Watch::Expected) => Watch::Expected,
                _ => Watch::No,
            };
            *watch != Watch::No
        });
        self.watched = watched;
    }

    /// Reads a chunk for which a thread took a turn.
    fn turn<W: Word>(&mut self, ring: &Ring<'_, W>, index: usize) {
        if ring.is_short() && index >= ring.ready() {
            // The chunk has no space: its thread took another turn.
            return;
        }
        if index >= self.chunks.len() {
            self.chunks.resize(index + 1, (0, Watch::No));
        }
        let watch = match self.read(ring, index) {
            ChunkRead::Open => Watch::Open,
            ChunkRead::Nothing => Watch::Expected,
            ChunkRead::Events => Watch::No,
        };
        self.watch(index, watch);
    }

    fn watch(&mut self, index: usize, watch: Watch) {
        let Some((_, now)) = self.chunks.get_mut(index) else {
            return;
        };
        *now = match (*now, watch) {
            (Watch::No, Watch::No) => Watch::No,
            // Already listed, and no event is expected: the next read takes it off the list.
            (_, Watch::No) => Watch::Open,
            (Watch::No, _) => {
                self.watched.push(index as u32);
                watch
            }
            _ => watch,
        };
    }

    /// Reads every chunk that was reached.
    fn sweep<W: Word>(&mut self, ring: &Ring<'_, W>) {
        for index in 0..self.chunks.len() {
            if self.read(ring, index) == ChunkRead::Open {
                self.watch(index, Watch::Open);
            }
        }
        self.swept = self.turns;
    }

    /// Reads the new events of a chunk.
    fn read<W: Word>(&mut self, ring: &Ring<'_, W>, index: usize) -> ChunkRead {
        // Without space it must not even be read: on a full tmpfs that is a fault.
        let Some((word, slots)) = ring.chunk(index).filter(|_| index < ring.ready()) else {
            return ChunkRead::Nothing;
        };
        let Some((next, _)) = self.chunks.get_mut(index) else {
            return ChunkRead::Nothing;
        };
        let from = self.waiting.len();
        let mut found = ChunkRead::Nothing;
        for _ in 0..LOOKS {
            self.waiting.truncate(from);
            // Acquire: everything written before the chunk came into this state is seen.
            let before = word.load(Ordering::Acquire);
            let (said, open) = match Chunk::decode(before) {
                Chunk::Closed(events) => (events, false),
                Chunk::Open(events) => (events, true),
            };
            found = if open {
                ChunkRead::Open
            } else {
                ChunkRead::Events
            };
            if said <= *next && !(open && has_grown(slots, said, *next)) {
                return if open {
                    ChunkRead::Open
                } else {
                    ChunkRead::Nothing
                };
            }
            copy_new(slots, *next, index as u32, &mut self.waiting);
            // Each slot was loaded with acquire. If one had been of a later holder, the word would
            // be too. Otherwise all numbers below the highest read were seen, or are overwritten.
            let seen = self.waiting.get(from..).unwrap_or_default();
            let newest = seen.iter().map(|one| one.number.wrapping_add(1)).max();
            let upto = newest.unwrap_or(0).max(said).max(*next);
            if word.load(Ordering::Relaxed) == before {
                self.overwritten += (upto - *next).saturating_sub(seen.len() as u64);
                *next = upto;
                return found;
            }
        }
        // The chunk changes its holder faster than it can be read. The last read counts, and the
        // events that it missed count as overwritten.
        let seen = self.waiting.get(from..).unwrap_or_default();
        let newest = seen.iter().map(|one| one.number.wrapping_add(1)).max();
        let upto = newest.unwrap_or(0).max(*next);
        self.overwritten += (upto - *next).saturating_sub(seen.len() as u64);
        *next = upto;
        // It may have been closed since, or opened.
        if found == ChunkRead::Events {
            found = ChunkRead::Open;
        }
        found
    }
}

/// True if the holder of a chunk that began with event `base` has completed event `next`.
fn has_grown<W: Word>(slots: &[Slot<W>], base: u64, next: u64) -> bool {
    let slot = usize::try_from(next.wrapping_sub(base)).ok();
    let slot = slot.and_then(|index| slots.get(index));
    slot.is_some_and(|slot| slot.state() == State::Complete(next))
}

/// Copies the events from a number on, in the order of the slots.
fn copy_new<W: Word>(slots: &[Slot<W>], next: u64, chunk: u32, to: &mut Vec<Tailed>) {
    let from = to.len();
    // From the last slot on, because slots are filled from the first: if a slot is seen, the
    // earlier ones are too.
    for slot in slots.iter().rev() {
        if let State::Complete(number) = slot.state()
            && number >= next
            && let Some(words) = slot.copy(number)
        {
            to.push(Tailed {
                words,
                number,
                chunk,
            });
        }
    }
    if let Some(copied) = to.get_mut(from..) {
        copied.reverse();
    }
}

#[cfg(all(test, not(miri)))]
mod model;
#[cfg(test)]
mod tests;
