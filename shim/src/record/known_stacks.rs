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
/// Threads that know theirs at most. The addresses of each are 2.4 MiB, of which it writes what it needs.
const THREADS: u32 = 64;
/// Stacks that a thread knows at most; then all are forgotten.
const STACKS: usize = 4096;
/// Stacks of one walk that are compared at most: the same native frames run many functions of Python.
const OF_ONE_WALK: usize = 64;
/// Frames of Python of all stacks together.
const FRAMES: usize = 1 << 15;
/// Room that one stack is given: the 256 functions of Python that are told, and the interpreter's own frames among them.
const OF_ONE_STACK: usize = 512;

/// What a thread knows. A value of zeros is nothing.
pub struct KnownStacks {
    walks: KnownWalks,
    /// Of which trace the ids are.
    trace: Cell<u64>,
    /// What was known of Python when they were made.
    python: Cell<u64>,
    /// Set while the thread is at it: an allocation in a signal's handler does not disturb it.
    is_busy: Cell<bool>,
    /// Their numbers are from 1 on.
    stacks: [Known; STACKS],
    count: Cell<usize>,
    /// The stack that was recorded last; 0 for none.
    last: Cell<u16>,
    /// By the number of a walk, the stack that was made of it last; 0 for none.
    of_walk: [Cell<u16>; KnownWalks::MOST],
    /// How many of `frames` are in use.
    used: Cell<usize>,
    frames: [Cell<RememberedFrame>; FRAMES],
}

/// A stack.
struct Known {
    /// The number of its walk; 0 once that is another one's.
    walk: Cell<u16>,
    /// Another stack of this walk; 0 for none.
    other: Cell<u16>,
    /// The stacks that came after it, the last one first; 0 for none.
    next: [Cell<u16>; 2],
    /// The innermost open range.
    ranges: Cell<u32>,
    id: Cell<u32>,
    /// The functions of Python that the thread was in.
    from: Cell<u32>,
    frames: Cell<u32>,
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

    /// Has what the likely next stack is told by brought nearer.
    #[inline]
    pub fn fetch_next(&self) {
        let last = self.known(self.last.get());
        let next = last.and_then(|last| self.known(last.next[0].get()));
        if let Some(frames) = next.and_then(|next| self.frames_of(next)) {
            python::fetch(frames);
        }
    }

    /// The id of the stack of a walk, if it is known.
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
        if let Some(last) = self.known(self.last.get()) {
            for expected in &last.next {
                if let Some(known) = is(expected.get()) {
                    let number = expected.get();
                    last.next[0].swap(expected);
                    self.last.set(number);
                    return Some(known.id.get());
                }
            }
        }
        let mut number = self.of_walk.get(walk)?.get();
        for _ in 0..OF_ONE_WALK {
            if let Some(known) = is(number) {
                self.comes_next(number);
                return Some(known.id.get());
            }
            number = self.known(number)?.other.get();
        }
        None
    }

    /// Whether the thread is in this stack, as its walk and ranges are these.
    #[inline]
    fn is(&self, known: &Known, walk: u16, ranges: u32) -> bool {
        if known.walk.get() != walk || known.ranges.get() != ranges {
            return false;
        }
        self.frames_of(known)
            .is_some_and(|frames| frames.is_empty() || python::is_in(frames))
    }

    /// The frames of a walk that was found again.
    pub fn copy(&self, met: Met, frames: &mut Frames) {
        self.walks.copy(met, frames);
    }

    /// Keeps the id of the stack of a walk. Not for one that was cut off.
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
            // Before 3.12, and without the GIL but in the main thread, they cannot be told later.
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
        known.next.iter().for_each(|next| next.set(0));
        known.ranges.set(ranges);
        known.id.set(id);
        known.from.set(self.used.get() as u32);
        known.frames.set(frames as u32);
        self.used.set(self.used.get() + frames);
        self.count.set(number);
        self.comes_next(number as u16);
    }

    /// The stack was recorded after the last one.
    fn comes_next(&self, number: u16) {
        if let Some(last) = self.known(self.last.replace(number)) {
            last.next[1].set(last.next[0].replace(number));
        }
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

    /// The number of a walk is that of another one now.
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
        self.last.set(0);
        self.of_walk.iter().for_each(|first| first.set(0));
    }
}
