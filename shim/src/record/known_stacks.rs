//! Stacks that a thread has recorded before, with their ids.
//!
//! Two stacks are equal if three things are: the walk over native frames, the functions of Python,
//! and the open ranges. The comparison takes a fraction of the time of a walk with the look-up of
//! places and ids. A training makes the same few hundred stacks in each step.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use gpushim_python::RememberedFrame;
use gpushim_trace::Writer;
use gpushim_trace::per_thread::{AtThreadEnd, OnDemand};
use gpushim_unwind::{Frames, History, KnownWalks, Met};

use crate::base::thread;
use crate::record::python::{self, Functions};

/// Number of stacks after which a thread remembers its stacks: most threads never allocate.
const AFTER: u32 = 64;
/// Most threads that remember their stacks. Each takes 2.5 MiB of addresses, and writes only the
/// parts that it needs.
const THREADS: u32 = 64;
/// Most stacks that a thread remembers; then all are forgotten.
const STACKS: usize = 4096;
/// Most stacks of one walk that are compared: the same native frames run many functions of Python.
const OF_ONE_WALK: usize = 64;
/// Number of Python's frames in all stacks together.
const FRAMES: usize = 1 << 15;
/// Room for one stack: the 256 functions of Python that are recorded, and the interpreter's own
/// frames among them.
const OF_ONE_STACK: usize = 512;

/// Stacks that a thread remembers. A value of zeros is an empty one.
pub struct KnownStacks {
    walks: KnownWalks,
    /// The trace to which the ids belong.
    trace: Cell<u64>,
    /// State of knowledge about Python when the stacks were made.
    python: Cell<u64>,
    /// True while the thread uses it: an allocation in a signal handler must not disturb that.
    is_busy: Cell<bool>,
    /// The remembered stacks. Their numbers begin at 1.
    stacks: [Known; STACKS],
    count: Cell<usize>,
    /// Numbers of the stacks that were recorded last.
    history: History,
    /// For each number of a walk, the last stack that was made of it; 0 for none.
    of_walk: [Cell<u16>; KnownWalks::MOST],
    /// Number of `frames` in use.
    used: Cell<usize>,
    frames: [Cell<RememberedFrame>; FRAMES],
}

/// A stack that a thread remembers.
struct Known {
    /// The number of its walk; 0 once that number belongs to another walk.
    walk: Cell<u16>,
    /// Another stack of this walk; 0 for none.
    other: Cell<u16>,
    /// Last place in the history.
    latest: Cell<u16>,
    /// The innermost open range.
    ranges: Cell<u32>,
    id: Cell<u32>,
    /// First of the frames of Python that the thread was in.
    from: Cell<u32>,
    frames: Cell<u32>,
}

thread_local! {
    static KNOWN: OnDemand<KnownStacks> = const { OnDemand::new() };
}

static END: AtThreadEnd = AtThreadEnd::new(ended);
/// Number of threads that remember their stacks.
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

/// Calls `walk` with the calling thread's stacks, if it remembers them.
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
    /// Returns the walks over native frames.
    pub fn walks(&self) -> &KnownWalks {
        &self.walks
    }

    /// Returns the id of the stack of a walk, if it is known.
    #[inline]
    pub fn find(&self, met: Met, writer: &Writer, ranges: u32) -> Option<u32> {
        let (walk, is_new) = met.walk()?;
        if is_new {
            self.forget_walk(walk);
            return None;
        }
        if (self.trace.get(), self.python.get()) != (writer.instance(), python::known()) {
            return None;
        }
        let is = |number: u16| {
            let known = self.known(number);
            known.filter(|known| self.is(known, walk as u16, ranges))
        };
        let found = self.history.find(|number| is(number).is_some());
        if let Some(number) = found {
            return self.comes_next(number, true);
        }
        let mut number = self.of_walk.get(walk)?.get();
        for _ in 0..OF_ONE_WALK {
            if is(number).is_some() {
                return self.comes_next(number, false);
            }
            number = self.known(number)?.other.get();
        }
        None
    }

    /// True if the thread is in this stack, with this walk and these ranges.
    #[inline]
    fn is(&self, known: &Known, walk: u16, ranges: u32) -> bool {
        if known.walk.get() != walk || known.ranges.get() != ranges {
            return false;
        }
        self.frames_of(known)
            .is_some_and(|frames| frames.is_empty() || python::is_in(frames))
    }

    /// Copies the frames of a walk that was found again.
    pub fn copy(&self, met: Met, frames: &mut Frames) {
        self.walks.copy(met, frames);
    }

    /// Remembers the id of the stack of a walk. The stack must not be cut off.
    #[cold]
    pub fn keep(&self, met: Met, writer: &Writer, ranges: u32, id: u32, functions: Functions) {
        let Some((walk, _)) = met.walk() else {
            return;
        };
        let now = (writer.instance(), python::known());
        let is_full = self.count.get() == STACKS || self.used.get() + OF_ONE_STACK > FRAMES;
        if (self.trace.get(), self.python.get()) != now || is_full {
            self.trace.set(now.0);
            self.python.set(now.1);
            self.forget();
        }
        let frames = match functions {
            Functions::Unknown => return,
            Functions::None => 0,
            // Before 3.12, and without the GIL outside the main thread, the functions cannot be
            // read later.
            Functions::Some => {
                let free = self.frames.get(self.used.get()..);
                match free.and_then(python::remember) {
                    Some(frames) => frames,
                    None => return,
                }
            }
        };
        let number = self.count.get() + 1;
        let (Some(known), Some(of_walk)) = (self.known(number as u16), self.of_walk.get(walk))
        else {
            return;
        };
        known.walk.set(walk as u16);
        known.other.set(of_walk.replace(number as u16));
        known.ranges.set(ranges);
        known.id.set(id);
        known.from.set(self.used.get() as u32);
        known.frames.set(frames as u32);
        self.used.set(self.used.get() + frames);
        self.count.set(number);
        self.comes_next(number as u16, false);
    }

    /// Notes that a stack was recorded, and returns its id. `is_found`: the history had it.
    #[inline]
    fn comes_next(&self, number: u16, is_found: bool) -> Option<u32> {
        let known = self.known(number)?;
        self.history.add(number, &known.latest, is_found);
        Some(known.id.get())
    }

    #[inline]
    fn known(&self, number: u16) -> Option<&Known> {
        self.stacks.get(usize::from(number).checked_sub(1)?)
    }

    #[inline]
    fn frames_of(&self, known: &Known) -> Option<&[Cell<RememberedFrame>]> {
        let from = known.from.get() as usize;
        self.frames.get(from..from + known.frames.get() as usize)
    }

    /// Forgets the stacks of a walk whose number now belongs to another one.
    #[cold]
    fn forget_walk(&self, walk: usize) {
        let mut number = self.of_walk.get(walk).map_or(0, |first| first.replace(0));
        while let Some(known) = self.known(number) {
            known.walk.set(0);
            number = known.other.replace(0);
        }
    }

    fn forget(&self) {
        self.used.set(0);
        self.count.set(0);
        self.history.clear();
        self.of_walk.iter().for_each(|first| first.set(0));
    }
}
