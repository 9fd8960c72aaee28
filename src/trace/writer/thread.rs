//! What a thread keeps for recording: the chunk that it fills, and of which trace.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};

use super::Mapped;
use crate::trace::clock::ClockSource;
use crate::trace::ring::Hold;

/// One thread's state. It has no destructor of its own, so that a thread can record until its very
/// last instruction; [`watch_end`] sees to the end.
struct Thread {
    /// The trace in which a chunk is held; compared, never followed. `trace` keeps the place in memory
    /// from being given to another trace.
    of: Cell<*const Mapped>,
    trace: Cell<Option<ManuallyDrop<Weak<Mapped>>>>,
    hold: Hold,
    /// Ticks of the last event.
    last: Cell<u64>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            of: Cell::new(ptr::null()),
            trace: Cell::new(None),
            hold: Hold::none(),
            last: Cell::new(0),
        }
    };
}

/// Records one event of the calling thread: its words, where the first, the time, is still open.
#[inline]
pub fn record(trace: &Arc<Mapped>, clock: ClockSource, event: [u64; 7]) {
    THREAD.with(|thread| {
        if !ptr::eq(thread.of.get(), Arc::as_ptr(trace)) {
            return thread.first(trace, clock, event);
        }
        thread.push(trace, clock, event);
    });
}

impl Thread {
    #[inline]
    fn push(&self, trace: &Mapped, clock: ClockSource, event: [u64; 7]) {
        // Later than the thread's event before, whatever the resolution of the clock: the times of a
        // thread's events are their order.
        let ticks = clock.now().max(self.last.get().saturating_add(1));
        self.last.set(ticks);
        let [_, head, who, address, size, first, second] = event;
        let words = [ticks, head, who, address, size, first, second];
        trace.ring.push(&self.hold, &words);
    }

    /// The thread's first event, or the first after one of another trace.
    #[cold]
    fn first(&self, trace: &Arc<Mapped>, clock: ClockSource, event: [u64; 7]) {
        self.leave();
        self.of.set(Arc::as_ptr(trace));
        self.trace
            .set(Some(ManuallyDrop::new(Arc::downgrade(trace))));
        self.push(trace, clock, event);
        if !watch_end() {
            // Nobody would close the chunk at the thread's end.
            self.leave();
        }
    }

    /// Closes the chunk that is held, if its trace is still there and this process's own.
    fn leave(&self) {
        self.of.set(ptr::null());
        if let Some(trace) = self.trace.take() {
            let trace = ManuallyDrop::into_inner(trace).upgrade();
            if let Some(trace) = trace.filter(|trace| trace.process == std::process::id()) {
                trace.ring.close(&self.hold);
            }
        }
        self.hold.forget();
    }
}

/// Has the calling thread's chunk closed when the thread ends; `false` if that cannot be had.
///
/// By a key of pthreads and not by a destructor of the thread-local: those of keys run last, so that
/// what other libraries free in their thread-local destructors is still recorded in the usual way, and
/// they do not run for the thread that calls `exit`, where destructors of statics may free much.
fn watch_end() -> bool {
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: the pointer is to a local key, and the function stays: this code is never unloaded
        // while a thread that recorded lives.
        let result = unsafe { libc::pthread_key_create(&mut key, Some(ended)) };
        (result == 0).then_some(key)
    });
    // Any value but null has the function called.
    let value = ptr::without_provenance::<c_void>(1);
    // SAFETY: the key was created above, and nobody deletes it.
    key.is_some_and(|key| unsafe { libc::pthread_setspecific(key, value) } == 0)
}

extern "C" fn ended(_: *mut c_void) {
    THREAD.with(Thread::leave);
}
