//! Stacks that a thread has recorded before, with their ids.
//!
//! The same walk over native frames, with the same functions of Python and the same open ranges, is the same stack. To
//! see that takes a fraction of the time of a walk, the functions' places and the look-up of the id; a training makes the
//! same few hundred stacks in each step.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use gpushim_python::RememberedFrame;
use gpushim_trace::Writer;
use gpushim_trace::per_thread::{AtThreadEnd, OnDemand};
use gpushim_unwind::{Frames, KnownWalks, Met};

use crate::base::thread;
use crate::record::python::{self, Functions};

/// Stacks of a thread after which it knows its stacks: most threads never allocate.
const AFTER: u32 = 64;
/// Threads that know theirs at most. The addresses of each are 1.8 MiB, of which it writes what it needs.
const THREADS: u32 = 64;
/// Frames of Python of all stacks together.
const FRAMES: usize = 1 << 14;

/// What a thread knows. A value of zeros is nothing.
pub struct KnownStacks {
    walks: KnownWalks,
    /// Of which trace the ids are.
    trace: Cell<u64>,
    /// What was known of Python when they were made.
    python: Cell<u64>,
    /// Set while the thread is at it: an allocation in a signal's handler does not disturb it.
    is_busy: Cell<bool>,
    /// By the number of the walk.
    stacks: [Known; KnownWalks::MOST],
    /// How many of `frames` are in use.
    used: Cell<usize>,
    frames: [Cell<RememberedFrame>; FRAMES],
}

/// The stack that a walk was part of the last time.
struct Known {
    is_there: Cell<bool>,
    /// The innermost open range.
    ranges: Cell<u32>,
    id: Cell<u32>,
    /// The functions of Python that the thread was in.
    from: Cell<u32>,
    count: Cell<u32>,
}

thread_local! {
    static KNOWN: OnDemand<KnownStacks> = const { OnDemand::new() };
}

static END: AtThreadEnd = AtThreadEnd::new(ended);
/// Threads that know their stacks.
static KNOWING: AtomicU32 = AtomicU32::new(0);

extern "C" fn ended(_: *mut c_void) {
    KNOWN.with(|known| {
        if known.get().is_some() {
            KNOWING.fetch_sub(1, Ordering::Relaxed);
        }
        // SAFETY: a thread that ends records no stack meanwhile.
        unsafe { known.free() };
    });
}

/// Calls `walk` with what the calling thread knows, if it knows its stacks.
#[inline]
pub fn with<R>(walk: impl FnOnce(Option<&KnownStacks>) -> R) -> R {
    KNOWN.with(|known| {
        let known = known.get().or_else(|| first(known));
        let known = known.filter(|known| !known.is_busy.replace(true));
        let result = walk(known);
        if let Some(known) = known {
            known.is_busy.set(false);
        }
        result
    })
}

fn first(known: &OnDemand<KnownStacks>) -> Option<&KnownStacks> {
    if !thread::walked_before(AFTER) {
        return None;
    }
    make(known)
}

#[cold]
fn make(known: &OnDemand<KnownStacks>) -> Option<&KnownStacks> {
    let is_free = |count: u32| (count < THREADS).then_some(count + 1);
    KNOWING
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_free)
        .ok()?;
    // SAFETY: numbers and `Cell`s of numbers and of `false`, all of which may be 0.
    let made = unsafe { known.make_zeroed(&END) };
    if made.is_none() {
        KNOWING.fetch_sub(1, Ordering::Relaxed);
    }
    made
}

impl KnownStacks {
    /// The walks over native frames.
    pub fn walks(&self) -> &KnownWalks {
        &self.walks
    }

    /// The id of the stack of a walk, if all of it is as it was the last time.
    #[inline]
    pub fn find(&self, met: Met, writer: &Writer, ranges: u32) -> Option<u32> {
        let (number, is_new) = met.walk()?;
        let known = self.stacks.get(number)?;
        if is_new {
            known.is_there.set(false);
            return None;
        }
        let is_current =
            (self.trace.get(), self.python.get()) == (writer.instance(), python::known());
        if !is_current || !known.is_there.get() || known.ranges.get() != ranges {
            return None;
        }
        let from = known.from.get() as usize;
        let frames = self.frames.get(from..from + known.count.get() as usize)?;
        (frames.is_empty() || python::is_in(frames)).then(|| known.id.get())
    }

    /// The frames of a walk that was found again.
    pub fn copy(&self, met: Met, frames: &mut Frames) {
        self.walks.copy(met, frames);
    }

    /// Keeps the id of the stack of a walk. Not for one that was cut off.
    #[cold]
    pub fn keep(&self, met: Met, writer: &Writer, ranges: u32, id: u32, functions: Functions) {
        let Some((number, _)) = met.walk() else {
            return;
        };
        let now = (writer.instance(), python::known());
        if (self.trace.get(), self.python.get()) != now {
            (self.trace.set(now.0), self.python.set(now.1));
            self.forget();
        }
        let Some(known) = self.stacks.get(number) else {
            return;
        };
        known.is_there.set(false);
        let count = match functions {
            Functions::None => 0,
            Functions::Unknown => return,
            Functions::Some => match self.remember(known) {
                Some(count) => count,
                None => return,
            },
        };
        known.count.set(count as u32);
        (known.ranges.set(ranges), known.id.set(id));
        known.is_there.set(true);
    }

    /// Keeps the functions that the thread is in, in the places that the walk has if they are enough: how many they are.
    fn remember(&self, known: &Known) -> Option<usize> {
        let behind = |used: usize| self.frames.get(used..).and_then(python::remember);
        let count = behind(self.used.get()).or_else(|| {
            self.forget();
            behind(0)
        })?;
        let used = self.used.get();
        if known.count.get() as usize >= count {
            let seen = self.frames.iter().skip(used);
            let places = self.frames.iter().skip(known.from.get() as usize);
            for (place, seen) in places.zip(seen).take(count) {
                place.set(seen.get());
            }
        } else {
            known.from.set(used as u32);
            self.used.set(used + count);
        }
        Some(count)
    }

    fn forget(&self) {
        self.used.set(0);
        for known in &self.stacks {
            known.is_there.set(false);
            known.count.set(0);
        }
    }
}
