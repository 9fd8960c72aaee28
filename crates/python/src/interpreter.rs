//! The interpreter of the process, and the frames of the calling thread in it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use crate::call::{Call, KEY};
use crate::declined::Declined;
use crate::frames::{Step, steps};
use crate::layout::Layout;
use crate::memory::{Guarded, Kernel, Memory, Own};
use crate::offsets::published;
use crate::remembered::{self, RememberedFrame};
use crate::symbols::{Symbols, this_thread};

/// Result of checking the layout against the running interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The layout is the interpreter's.
    Sound,
    /// The thread runs no Python function for a check.
    NotYet,
    /// The layout is another one, and this is the first report of it.
    Refused,
    /// The layout is another one.
    Not,
}

/// Thread state of the calling thread, whose frames can be read now.
#[derive(Clone, Copy, Debug)]
pub struct State {
    address: u64,
    /// True if the interpreter cannot end while the thread reads, which would free the frames.
    is_held: bool,
}

/// An interpreter, and the layout of its frames.
#[derive(Debug)]
pub struct Interpreter {
    symbols: Symbols,
    layout: Layout,
    /// [`SOUND`], [`NOT`], or the number of unsound stacks so far.
    state: AtomicU8,
}

const SOUND: u8 = u8::MAX;
const NOT: u8 = u8::MAX - 1;
/// Number of stacks that may be unsound before the layout counts as another one. A single one may
/// be in the middle of a change.
const TRIES: u8 = 4;
/// Number of functions of a stack that are read when the layout is checked.
const LOOKED_AT: usize = 64;

impl Interpreter {
    /// Returns the interpreter with these symbols.
    ///
    /// # Errors
    /// Its frames cannot be read.
    pub fn new(symbols: Symbols) -> Result<Interpreter, Declined> {
        let layout = match symbols.minor {
            minor @ 0..=12 => Layout::of(minor).ok_or(Declined::Version(minor)),
            minor => published(&Kernel, symbols.runtime, minor),
        }?;
        Ok(Interpreter {
            symbols,
            layout,
            state: AtomicU8::new(0),
        })
    }

    /// Finds the interpreter of the process by its symbols. `look` returns the address of a name,
    /// or null. `None` if there is no interpreter.
    ///
    /// # Safety
    /// An address from `look` is the address of CPython's symbol with this name.
    pub unsafe fn find(
        look: impl Fn(&std::ffi::CStr) -> *mut std::ffi::c_void,
    ) -> Option<Result<Interpreter, Declined>> {
        // SAFETY: the caller promises it.
        unsafe { Symbols::find(look) }.map(Interpreter::new)
    }

    /// Returns the address of the function that runs Python's instructions.
    pub fn evaluator(&self) -> u64 {
        self.symbols.evaluator
    }

    /// Returns the minor version; the major one is 3.
    pub fn minor(&self) -> u8 {
        self.symbols.minor
    }

    /// Returns the thread state of the calling thread, if its frames can be read now. `is_main` is
    /// true for the process's first thread: it runs the interpreter, and so ends it.
    ///
    /// It is the thread's own state, even while the thread does not hold the GIL. While the
    /// interpreter ends, only the thread that ends it has one. The states of the others are freed
    /// then, from 3.11 on with their frames. Code stays: the frames' references to it are never
    /// released.
    ///
    /// Two sorts of threads keep the interpreter from its end: one that holds the GIL, and the one
    /// that would have to end it. For every other thread [`Interpreter::walk`] checks after each
    /// copy.
    #[inline]
    pub fn state(&self, is_main: bool) -> Option<State> {
        let holder = self.holder();
        // From 3.12 on the holder is the running thread state, also in a subinterpreter, and null
        // without the GIL.
        let running = holder.filter(|_| self.symbols.minor >= 12);
        let address = running.unwrap_or_else(|| self.own());
        if address == 0 {
            return None;
        }
        let is_sound = self.state.load(Ordering::Relaxed) == SOUND;
        (!is_sound || self.lets_live(address)).then_some(State {
            address,
            is_held: is_main || holder == Some(address),
        })
    }

    fn own(&self) -> u64 {
        // SAFETY: CPython's function, which only reads.
        unsafe { (self.symbols.of_this_thread)() as u64 }
    }

    /// True if the interpreter does not end, or this thread state ends it.
    #[inline]
    fn lets_live(&self, state: u64) -> bool {
        // SAFETY: `_PyRuntime` is a global of the interpreter.
        let memory = unsafe { Own::new() };
        let ending = memory.word(self.symbols.runtime.wrapping_add(self.layout.finalizing));
        ending.is_some_and(|ending| ending == 0 || ending == state)
    }

    /// Returns a second thread state of the calling thread, inside of which it runs. Up to 3.11
    /// this is a subinterpreter's, which [`Interpreter::state`] does not find. Reads by the kernel:
    /// for inconsistent stacks.
    #[cold]
    pub fn inner(&self, state: State) -> Option<State> {
        let holder = self.holder().filter(|holder| *holder != state.address)?;
        let thread = Kernel.word(holder.wrapping_add(self.layout.thread_id))?;
        (self.symbols.minor < 12 && thread == this_thread()).then_some(State {
            address: holder,
            is_held: true,
        })
    }

    /// True if the frames of a thread state are surely the innermost ones of its thread. Otherwise
    /// its interpreter may run another one.
    pub fn is_innermost(&self, state: State) -> bool {
        self.symbols.minor >= 12 || self.holder() == Some(state.address)
    }

    fn holder(&self) -> Option<u64> {
        // SAFETY: CPython's function, which only reads.
        let holder = unsafe { (self.symbols.holder?)() } as u64;
        (holder != 0).then_some(holder)
    }

    /// True if the layout fits, by the calling thread's state; quick once that is known.
    #[inline]
    pub fn check(&self, state: State) -> Checked {
        match self.state.load(Ordering::Relaxed) {
            SOUND => Checked::Sound,
            NOT => Checked::Not,
            _ => self.examine(state),
        }
    }

    #[cold]
    fn examine(&self, state: State) -> Checked {
        match self.is_sound(state.address) {
            Some(true) => {
                self.state.store(SOUND, Ordering::Relaxed);
                return Checked::Sound;
            }
            Some(false) => return Checked::NotYet,
            None => {}
        }
        let raised = |tries: u8| (tries < TRIES).then_some(tries + 1);
        match self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised)
        {
            Ok(_) => Checked::NotYet,
            Err(tries) => {
                let first =
                    self.state
                        .compare_exchange(tries, NOT, Ordering::Relaxed, Ordering::Relaxed);
                match first {
                    Ok(_) if tries < NOT => Checked::Refused,
                    _ => self.check(state),
                }
            }
        }
    }

    /// True if the stack of a thread state is sound and has a function, false if it has none.
    /// `None` if it is not sound. Reads by the kernel.
    fn is_sound(&self, state: u64) -> Option<bool> {
        let (memory, layout, types) = (&Kernel, &self.layout, &self.symbols.types);
        let word = |at: u64| memory.word(state.wrapping_add(at));
        let ending = memory.word(self.symbols.runtime.wrapping_add(layout.finalizing))?;
        let is_own = word(layout.thread_id)? == this_thread();
        // The interpreter is an object of some size.
        memory.word(word(layout.interpreter)?)?;
        if !is_own || (ending != 0 && ending != state) {
            return None;
        }
        let (mut calls, mut is_sound) = (0, true);
        steps(memory, memory, layout, types, state, |step| {
            if let Step::Call(call) = step
                && calls < LOOKED_AT
            {
                calls += 1;
                is_sound &= call.key(memory, layout).is_some()
                    && call
                        .describe(memory, layout, types, |text| !text.is_empty())
                        .is_some_and(|(has_name, has_file, _)| has_name && has_file);
            }
            is_sound
        })?;
        is_sound.then_some(calls > 0)
    }

    /// Walks the frames of a thread state, from the innermost outwards, as long as `take` returns
    /// true.
    ///
    /// # Safety
    /// The following must hold:
    ///
    /// - [`Interpreter::state`] or [`Interpreter::inner`] gave this state to the calling thread;
    /// - the thread has run nothing of Python since;
    /// - [`Interpreter::check`] said that the layout is sound.
    #[inline]
    pub unsafe fn walk(&self, state: State, take: impl FnMut(Step) -> bool) {
        // SAFETY: the functions that a thread is in keep their frames, as long as it keeps them
        // from being freed.
        let own = unsafe { Own::new() };
        if state.is_held {
            self.walk_in(&own, state.address, take);
        } else if self.has_frames(&own, state.address) {
            self.walk_guarded(state.address, take);
        }
    }

    /// True if a thread runs any function. PyTorch's threads for the backward pass run none, and
    /// allocate often: they need no system call. This reads the thread state a few instructions
    /// after [`Interpreter::state`] saw that the interpreter does not end. It reads no frame:
    /// frames are unmapped, and take longer to read.
    #[inline]
    fn has_frames(&self, memory: &Own, state: u64) -> bool {
        let current = memory.word(state.wrapping_add(self.layout.current));
        let frame = match self.layout.cframe {
            // It lies on the thread's own stack, or in the thread state.
            Some(at) => current.and_then(|cframe| memory.word(cframe.wrapping_add(at))),
            None => current,
        };
        frame.is_some_and(|frame| frame != 0)
    }

    /// Walks frames that are freed if another thread ends the interpreter meanwhile. That thread
    /// sets `finalizing` first. When it is null again, this thread has no state any more.
    #[cold]
    #[inline(never)]
    fn walk_guarded(&self, state: u64, take: impl FnMut(Step) -> bool) {
        let is_still_there = || {
            // The copy was made before this is read.
            fence(Ordering::Acquire);
            self.lets_live(state) && self.own() == state
        };
        self.walk_in(&Guarded::new(is_still_there), state, take);
    }

    /// True if a thread state is the calling thread's.
    #[inline]
    fn is_own(&self, memory: &impl Memory, state: u64) -> bool {
        memory.word(state.wrapping_add(self.layout.thread_id)) == Some(this_thread())
    }

    #[inline]
    fn walk_in(&self, memory: &impl Memory, state: u64, take: impl FnMut(Step) -> bool) {
        // SAFETY: frame objects belong to the native calls that run them, and code to frames, which
        // keep it when they are freed with the state of their thread: none is freed while the
        // thread is in it.
        let objects = unsafe { Own::new() };
        if self.is_own(memory, state) {
            // A stack with an invalid end was read as far as it is sound.
            let _ = steps(
                memory,
                &objects,
                &self.layout,
                &self.symbols.types,
                state,
                take,
            );
        }
    }

    /// Puts the frames of a thread state into `into`, and returns their number.
    /// [`Interpreter::has_still`] compares them later. `None` if not all fit, or if this version
    /// does not allow the comparison.
    ///
    /// # Safety
    /// The conditions of [`Interpreter::walk`].
    pub unsafe fn remember(&self, state: State, into: &[Cell<RememberedFrame>]) -> Option<usize> {
        self.layout.version?;
        // SAFETY: as in `walk`.
        let memory = unsafe { Own::new() };
        let is_safe = state.is_held && self.is_own(&memory, state.address);
        is_safe.then(|| remembered::remember(&memory, &self.layout, state.address, into))?
    }

    /// True if a thread state has exactly these frames, which [`Interpreter::remember`] gave.
    ///
    /// # Safety
    /// The conditions of [`Interpreter::walk`].
    #[inline]
    pub unsafe fn has_still(&self, state: State, frames: &[Cell<RememberedFrame>]) -> bool {
        // SAFETY: as in `walk`.
        let memory = unsafe { Own::new() };
        state.is_held
            && self.is_own(&memory, state.address)
            && remembered::are(&memory, &self.layout, state.address, frames)
    }

    /// Returns the key that distinguishes the place of a call from every other, see [`Call::key`].
    ///
    /// # Safety
    /// The call came from [`Interpreter::walk`] of the calling thread, which has run nothing of
    /// Python since.
    #[inline]
    pub unsafe fn key(&self, call: Call) -> Option<[u64; KEY]> {
        // SAFETY: as above.
        call.key(&unsafe { Own::new() }, &self.layout)
    }

    /// Passes the name of a call's function to `take`, qualified from 3.11 on, and the path of its
    /// file. Returns both results, and the line, 0 if there is none. Takes as long as reading the
    /// table of lines.
    ///
    /// # Safety
    /// The conditions of [`Interpreter::key`].
    pub unsafe fn describe<T>(
        &self,
        call: Call,
        take: impl FnMut(&str) -> T,
    ) -> Option<(T, T, u32)> {
        // SAFETY: as above.
        let memory = unsafe { Own::new() };
        call.describe(&memory, &self.layout, &self.symbols.types, take)
    }
}
