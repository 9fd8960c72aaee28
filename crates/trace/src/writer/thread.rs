//! State of a thread for recording: its trace, its chunk, and its stripe of the totals.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Weak};

use super::Mapped;
use crate::clock::ClockSource;
use crate::event::{Event, Layer};
use crate::live::{Numbers, OwnPlace, Removed};
use crate::per_thread::AtThreadEnd;
use crate::ring::ChunkLease;
use crate::totals::{Claim, Sort};

/// State of one thread. It has no destructor, so that a thread can record until its last
/// instruction. [`END`] releases its chunk and its stripe.
struct Thread {
    /// Trace in which a chunk is held; compared, never dereferenced. `trace` keeps its memory from
    /// being given to another trace.
    of: Cell<*const Mapped>,
    trace: Cell<Option<ManuallyDrop<Weak<Mapped>>>>,
    hold: ChunkLease,
    claim: Claim,
    /// Ticks of the last event.
    last: Cell<u64>,
    /// True if the thread's end cannot be observed by [`END`].
    is_unwatched: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            of: Cell::new(ptr::null()),
            trace: Cell::new(None),
            hold: ChunkLease::none(),
            claim: Claim::none(),
            last: Cell::new(0),
            is_unwatched: Cell::new(false),
        }
    };
}

/// Records one event of the calling thread: its words, the first of which, the time, is set here.
#[inline]
pub fn record(trace: &Arc<Mapped>, clock: ClockSource, event: [u64; 7]) {
    let thread = Thread::of(trace);
    let words = thread.timed(clock.now_after(), event);
    trace.ring.push(&thread.hold, &words);
    thread.settle();
}

/// Prefetches the memory that the record of a block with this key writes.
#[inline]
pub fn prefetch(trace: &Arc<Mapped>, (key, place): (Option<u64>, (Layer, u8))) {
    let thread = Thread::of(trace);
    trace.live.prefetch(trace.live.spot(key));
    trace.tally.prefetch(&thread.claim, place);
    thread.settle();
}

/// Records an event that made a block with this key, counted in the totals at `place`, at the time
/// `now`.
#[inline(always)]
pub fn record_alloc(
    trace: &Arc<Mapped>,
    now: impl FnOnce() -> u64,
    event: [u64; 7],
    (key, place): (Option<u64>, (Layer, u8)),
) {
    let thread = Thread::of(trace);
    let spot = trace.live.spot(key);
    trace.live.prefetch(spot);
    let words = thread.timed(now(), event);
    trace.live.insert(spot, &words);
    count_made(thread, trace, &words, place);
}

/// Records an event like [`record_alloc`], of a block with a number, at later ticks than `after`.
#[inline(always)]
pub fn record_numbered_alloc(
    trace: &Arc<Mapped>,
    clock: ClockSource,
    event: [u64; 7],
    after: u64,
    (numbers, number): (&Numbers, u32),
    (key, place): (Option<u64>, (Layer, u8)),
) {
    let thread = Thread::of(trace);
    let own = trace.live.own_place(numbers, number);
    own.iter().for_each(OwnPlace::prefetch);
    let ticks = clock.now().max(after.saturating_add(1));
    let words = thread.timed(ticks, event);
    let entered = own
        .zip(key)
        .is_some_and(|(own, key)| own.enter(key, &words));
    if !entered {
        insert(trace, key, &words);
    }
    count_made(thread, trace, &words, place);
}

/// Enters a block that has no place of its own.
#[cold]
fn insert(trace: &Mapped, key: Option<u64>, words: &[u64; 7]) {
    trace.live.insert(trace.live.spot(key), words);
}

#[inline(always)]
fn count_made(thread: &Thread, trace: &Mapped, words: &[u64; 7], place: (Layer, u8)) {
    trace.ring.push(&thread.hold, words);
    let [_, _, _, _, size, _, _] = *words;
    trace
        .tally
        .add(&thread.claim, Sort::Allocation, place, size);
    thread.settle();
}

/// Records an event that ended a block with this key, counted in the totals at `place`, at the time
/// `now`. Returns the block's entry in the live table.
#[inline(always)]
pub fn record_free(
    trace: &Arc<Mapped>,
    now: impl FnOnce() -> u64,
    event: [u64; 7],
    (key, place): (Option<u64>, (Layer, u8)),
) -> Option<Removed> {
    let thread = Thread::of(trace);
    let spot = trace.live.spot(key);
    trace.live.prefetch(spot);
    let words = thread.timed(now(), event);
    let removed = trace.live.remove(spot);
    count_ended(thread, trace, &words, place, removed);
    removed
}

/// Records an event like [`record_free`], of a block with a number. Returns the event's ticks.
#[inline(always)]
pub fn record_numbered_free(
    trace: &Arc<Mapped>,
    clock: ClockSource,
    event: [u64; 7],
    (numbers, number): (&Numbers, u32),
    (key, place): (Option<u64>, (Layer, u8)),
) -> u64 {
    let thread = Thread::of(trace);
    let own = trace.live.known_place(numbers, number);
    own.iter().for_each(OwnPlace::prefetch);
    let words = thread.timed(clock.now(), event);
    let taken = own.zip(key).and_then(|(own, key)| own.take(key));
    let removed = match taken {
        None => remove(trace, key),
        taken => taken,
    };
    count_ended(thread, trace, &words, place, removed);
    let [ticks, ..] = words;
    ticks
}

/// Takes out a block that has no place of its own.
#[cold]
fn remove(trace: &Mapped, key: Option<u64>) -> Option<Removed> {
    trace.live.remove(trace.live.spot(key))
}

#[inline(always)]
fn count_ended(
    thread: &Thread,
    trace: &Mapped,
    words: &[u64; 7],
    place: (Layer, u8),
    removed: Option<Removed>,
) {
    trace.ring.push(&thread.hold, words);
    let [_, _, _, _, size, _, _] = *words;
    let size = removed.map_or(size, |block| block.size);
    trace.tally.add(&thread.claim, Sort::Free, place, size);
    thread.settle();
}

/// Records an event that ended a block no longer in the live table, counted in the totals at
/// `place`.
#[inline]
pub fn record_left(trace: &Arc<Mapped>, clock: ClockSource, event: [u64; 7], place: (Layer, u8)) {
    let thread = Thread::of(trace);
    let words = thread.timed(clock.now(), event);
    trace.ring.push(&thread.hold, &words);
    let [_, _, _, _, size, _, _] = words;
    trace.tally.add(&thread.claim, Sort::Free, place, size);
    thread.settle();
}

/// Takes blocks out of the live table and counts them as freed. Returns their number and their
/// bytes.
pub fn drop_live(trace: &Arc<Mapped>, wanted: impl FnMut(&Event) -> bool) -> (u64, u64) {
    let thread = Thread::of(trace);
    let (mut blocks, mut bytes) = (0, 0_u64);
    trace.live.remove_where(wanted, |event| {
        let place = (event.class.layer(), event.device);
        trace
            .tally
            .add(&thread.claim, Sort::Free, place, event.size);
        (blocks, bytes) = (blocks + 1, bytes.saturating_add(event.size));
    });
    thread.settle();
    (blocks, bytes)
}

impl Thread {
    /// Returns the words of an event with these ticks, or the next after the thread's last event.
    #[inline]
    fn timed(&self, ticks: u64, event: [u64; 7]) -> [u64; 7] {
        // Later than the thread's previous event, whatever the resolution of the clock: a thread's
        // events are ordered by their times.
        let ticks = ticks.max(self.last.get().saturating_add(1));
        self.last.set(ticks);
        let [_, head, who, address, size, first, second] = event;
        [ticks, head, who, address, size, first, second]
    }

    /// Returns the calling thread's state for a trace; [`Thread::settle`] must follow its use. This
    /// is a reference and no closure, so that the recording code is inlined in its caller. Then no
    /// registers are saved and restored for each event.
    #[inline(always)]
    fn of<'a>(trace: &Arc<Mapped>) -> &'a Thread {
        let thread = THREAD.with(ptr::from_ref);
        // SAFETY: the state has no destructor and lives as long as its thread, which runs this; a
        // reference to it cannot be sent to another one.
        let thread = unsafe { &*thread };
        if !ptr::eq(thread.of.get(), Arc::as_ptr(trace)) {
            thread.enter(trace);
        }
        thread
    }

    /// Prepares the state before the thread's first event, or the first after one of another trace.
    #[cold]
    fn enter(&self, trace: &Arc<Mapped>) {
        self.leave();
        self.of.set(Arc::as_ptr(trace));
        self.trace
            .set(Some(ManuallyDrop::new(Arc::downgrade(trace))));
        self.is_unwatched.set(!END.watch());
    }

    /// Closes the chunk after an event of a thread whose end cannot be observed.
    #[inline(always)]
    fn settle(&self) {
        if self.is_unwatched.get() {
            self.leave();
        }
    }

    /// Closes the held chunk and releases the stripe, if their trace still exists and belongs to
    /// this process.
    fn leave(&self) {
        self.of.set(ptr::null());
        if let Some(trace) = self.trace.take() {
            let trace = ManuallyDrop::into_inner(trace).upgrade();
            if let Some(trace) = trace.filter(|trace| trace.process == std::process::id()) {
                trace.ring.close(&self.hold);
                trace.tally.release(&self.claim);
            }
        }
        self.hold.forget();
        self.claim.forget();
    }
}

/// Callback that closes the calling thread's chunk when the thread ends, after destructors of
/// thread-locals. So frees in other libraries' destructors are still recorded.
static END: AtThreadEnd = AtThreadEnd::new(ended);

extern "C" fn ended(_: *mut c_void) {
    THREAD.with(Thread::leave);
}
