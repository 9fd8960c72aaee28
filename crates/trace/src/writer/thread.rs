//! What a thread keeps for recording: the chunk that it fills, its stripe of the totals, and of which
//! trace.

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

/// One thread's state. It has no destructor of its own, so that a thread can record until its very
/// last instruction; [`END`] sees to the end.
struct Thread {
    /// The trace in which a chunk is held; compared, never followed. `trace` keeps the place in memory
    /// from being given to another trace.
    of: Cell<*const Mapped>,
    trace: Cell<Option<ManuallyDrop<Weak<Mapped>>>>,
    hold: ChunkLease,
    claim: Claim,
    /// Ticks of the last event.
    last: Cell<u64>,
    /// Whether the thread's end cannot be observed by [`END`].
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

/// Records one event of the calling thread: its words, where the first, the time, is still open.
#[inline]
pub fn record(trace: &Arc<Mapped>, clock: ClockSource, event: [u64; 7]) {
    let thread = Thread::of(trace);
    let words = thread.timed(clock.now_after(), event);
    trace.ring.push(&thread.hold, &words);
    thread.settle();
}

/// Records an event that made a block, of this key and counted there.
#[inline(always)]
pub fn record_alloc(
    trace: &Arc<Mapped>,
    clock: ClockSource,
    event: [u64; 7],
    (key, place): (Option<u64>, (Layer, u8)),
) {
    let thread = Thread::of(trace);
    let spot = trace.live.spot(key);
    trace.live.prefetch(spot);
    let words = thread.timed(clock.now_after(), event);
    trace.live.insert(spot, &words);
    count_made(thread, trace, &words, place);
}

/// As [`record_alloc`], of a block with a number, later than the ticks of `after`.
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

/// Records an event that ended a block, of this key and counted there. What was known of the block.
#[inline(always)]
pub fn record_free(
    trace: &Arc<Mapped>,
    clock: ClockSource,
    event: [u64; 7],
    (key, place): (Option<u64>, (Layer, u8)),
) -> Option<Removed> {
    let thread = Thread::of(trace);
    let spot = trace.live.spot(key);
    trace.live.prefetch(spot);
    let words = thread.timed(clock.now(), event);
    let removed = trace.live.remove(spot);
    count_ended(thread, trace, &words, place, removed);
    removed
}

/// As [`record_free`], of a block with a number. The event's ticks.
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

/// Takes out a block that was not in a place of its own.
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

/// Records an event that ended a block that is no longer in the live table, counted there.
#[inline]
pub fn record_left(trace: &Arc<Mapped>, clock: ClockSource, event: [u64; 7], place: (Layer, u8)) {
    let thread = Thread::of(trace);
    let words = thread.timed(clock.now(), event);
    trace.ring.push(&thread.hold, &words);
    let [_, _, _, _, size, _, _] = words;
    trace.tally.add(&thread.claim, Sort::Free, place, size);
    thread.settle();
}

/// Takes blocks out of the live table and counts them as freed: how many, and their bytes.
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
    /// The words of an event with a time that was read just now.
    #[inline]
    fn timed(&self, ticks: u64, event: [u64; 7]) -> [u64; 7] {
        // Later than the thread's event before, whatever the resolution of the clock: the times of a
        // thread's events are their order.
        let ticks = ticks.max(self.last.get().saturating_add(1));
        self.last.set(ticks);
        let [_, head, who, address, size, first, second] = event;
        [ticks, head, who, address, size, first, second]
    }

    /// The calling thread's state for a trace; [`Thread::settle`] comes after its use. A reference and no closure: what
    /// records stands in its caller then, and its registers are not saved and restored for each event.
    #[inline(always)]
    fn of<'a>(trace: &Arc<Mapped>) -> &'a Thread {
        let thread = THREAD.with(ptr::from_ref);
        // SAFETY: the state has no destructor and lives as long as its thread, which runs this; a reference to it cannot be
        // sent to another one.
        let thread = unsafe { &*thread };
        if !ptr::eq(thread.of.get(), Arc::as_ptr(trace)) {
            thread.enter(trace);
        }
        thread
    }

    /// Before the thread's first event, or the first after one of another trace.
    #[cold]
    fn enter(&self, trace: &Arc<Mapped>) {
        self.leave();
        self.of.set(Arc::as_ptr(trace));
        self.trace
            .set(Some(ManuallyDrop::new(Arc::downgrade(trace))));
        self.is_unwatched.set(!END.watch());
    }

    /// After an event: nothing would close the chunk at the end of a thread that is not watched.
    #[inline(always)]
    fn settle(&self) {
        if self.is_unwatched.get() {
            self.leave();
        }
    }

    /// Closes the chunk that is held and gives the stripe back, if their trace is still there and this
    /// process's own.
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

/// Has the calling thread's chunk closed when the thread ends, after destructors of thread-locals: what
/// other libraries free in theirs is still recorded in the usual way.
static END: AtThreadEnd = AtThreadEnd::new(ended);

extern "C" fn ended(_: *mut c_void) {
    THREAD.with(Thread::leave);
}
