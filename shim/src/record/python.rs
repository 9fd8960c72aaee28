//! Python's functions in stacks, in place of the frames of the interpreter that ran them.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use gpushim_config::Log;
use gpushim_python::{Call, Checked, Declined, Interpreter, Owners, RememberedFrame, State, Step};
use gpushim_trace::{SITE, Site, Writer};

use crate::base::stderr::say;
use crate::base::{linker, settings, thread};

/// The interpreter of the process, once it was found; it stays.
static PYTHON: AtomicPtr<Python> = AtomicPtr::new(ptr::null_mut());
/// Number of modules that were met: any of them may be an interpreter.
static MET: AtomicU64 = AtomicU64::new(0);
/// Number of modules that had been met at the last search for an interpreter.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// The library of the interpreter, if it was loaded apart from the others.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// An interpreter, and the address ranges of its code that runs functions.
struct Python {
    interpreter: Interpreter,
    /// Ranges of the evaluator. Empty ones are at the end.
    evaluator: [Range<u64>; 4],
}

/// Notes a module that was met: an interpreter may be in it.
pub fn met(path: &Path) {
    if !settings::config().python {
        return;
    }
    let name = path.file_name().unwrap_or_default().as_bytes();
    if name.starts_with(b"libpython3")
        && let Ok(path) = CString::new(path.as_os_str().as_bytes())
        && let Some(library) = linker::loaded(&path)
    {
        LIBRARY.store(library, Ordering::Relaxed);
    }
    MET.fetch_add(1, Ordering::Release);
}

/// Most frames of both kinds.
const MOST: usize = 512;
/// Most functions of Python: the innermost ones.
const FUNCTIONS: usize = 256;

/// A row of frames, innermost first: return addresses and sites.
pub struct Row {
    frames: [MaybeUninit<u64>; MOST],
    length: usize,
}

impl Row {
    /// Makes a row of no frames.
    pub const fn new() -> Row {
        let frames = MaybeUninit::<[MaybeUninit<u64>; MOST]>::uninit();
        Row {
            // As in `gpushim_unwind::Frames`: nothing is filled.
            // SAFETY: an array of words that may be uninitialised is always initialised.
            frames: unsafe { frames.assume_init() },
            length: 0,
        }
    }

    /// Returns the frames of the row.
    pub fn as_slice(&self) -> &[u64] {
        // SAFETY: `push` initialised the first `length` words, and `length` is at most their
        // number.
        unsafe { std::slice::from_raw_parts(self.frames.as_ptr().cast(), self.length) }
    }

    #[inline]
    fn push(&mut self, frame: u64) -> bool {
        let Some(place) = self.frames.get_mut(self.length) else {
            return false;
        };
        place.write(frame);
        self.length += 1;
        true
    }
}

/// Mark in a row of functions. The functions since the last mark belong to one native frame. No
/// frame is 0.
const ENTRY: u64 = 0;

/// Functions of Python in a thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functions {
    /// The thread is in no function of Python.
    None,
    /// The thread is in some, and [`remember`] returns them all.
    Some,
    /// The thread may be in others, too.
    Unknown,
}

/// The functions of Python that the calling thread is in.
struct Callers {
    row: Row,
    /// Number of the evaluator's native frames to which they belong.
    entries: usize,
    /// Number of functions among them.
    count: usize,
    /// True if there are more, further out.
    is_cut: bool,
    /// True if a function had no room for its place in the source.
    is_short: bool,
}

/// Native frames that are the evaluator's, one bit each.
struct Evaluations([u64; gpushim_unwind::MAX_FRAMES / 64]);

impl Evaluations {
    fn among(native: &[u64], python: &Python) -> Evaluations {
        let mut found = Evaluations([0; gpushim_unwind::MAX_FRAMES / 64]);
        for (bits, frames) in found.0.iter_mut().zip(native.chunks(64)) {
            for (place, frame) in frames.iter().enumerate() {
                *bits |= u64::from(python.runs(*frame)) << place;
            }
        }
        found
    }

    fn count(&self) -> usize {
        self.0.iter().map(|bits| bits.count_ones() as usize).sum()
    }

    #[inline]
    fn has(&self, place: usize) -> bool {
        self.0
            .get(place / 64)
            .is_some_and(|bits| bits >> (place % 64) & 1 == 1)
    }
}

/// Returns the interpreter, if it was found.
#[inline]
fn found() -> Option<&'static Python> {
    // Acquire: the interpreter is complete. SAFETY: the pointer is null, or to one that is never
    // freed.
    unsafe { PYTHON.load(Ordering::Acquire).as_ref() }
}

/// Returns a number for the knowledge of the interpreter. When it changes, a thread may be in
/// functions that were not seen.
#[inline]
pub fn known() -> u64 {
    match PYTHON.load(Ordering::Relaxed).is_null() {
        true => MET.load(Ordering::Relaxed),
        false => u64::MAX,
    }
}

/// Keeps the functions that the calling thread is in, after [`in_place`] returned
/// [`Functions::Some`]. Returns the number of frames. `None`: the functions cannot be read later,
/// or do not fit.
pub fn remember(into: &[Cell<RememberedFrame>]) -> Option<usize> {
    let python = found()?;
    let state = python.interpreter.state(thread::is_main())?;
    // SAFETY: the state is the calling thread's, it was checked, and nothing of Python runs
    // meanwhile.
    unsafe { python.interpreter.remember(state, into) }
}

/// True if the calling thread is in these functions of [`remember`], and in no others.
#[inline]
pub fn is_in(frames: &[Cell<RememberedFrame>]) -> bool {
    let state = |python: &Python| python.interpreter.state(thread::is_main());
    found().is_some_and(|python| {
        // SAFETY: the state is the calling thread's, it was checked when they were remembered, and
        // nothing of Python runs meanwhile.
        state(python).is_some_and(|state| unsafe { python.interpreter.has_still(state, frames) })
    })
}

/// Puts Python's functions in place of the native frames that ran them, if the thread runs any.
/// `None`: the native frames are the whole stack. `is_whole`: the native frames are complete. Also
/// returns if there are functions.
#[inline]
pub fn in_place<'r>(
    writer: &Writer,
    native: &[u64],
    is_whole: bool,
    mixed: &'r mut Row,
) -> (Option<&'r [u64]>, Functions) {
    if found().is_none() && MET.load(Ordering::Relaxed) == LOOKED.load(Ordering::Relaxed) {
        return (None, Functions::None);
    }
    let Some(python) = found().or_else(look) else {
        return (None, Functions::None);
    };
    let evaluations = Evaluations::among(native, python);
    // Otherwise the evaluator would be among the native frames.
    if is_whole && evaluations.count() == 0 {
        return (None, Functions::None);
    }
    let mixed = python.put(writer, native, &evaluations, mixed);
    match mixed {
        Some((mixed, functions)) => (Some(mixed), functions),
        None => (None, Functions::Unknown),
    }
}

impl Python {
    /// Does the work of [`in_place`]; `None` if there are no functions, or they cannot be read.
    fn put<'r>(
        &self,
        writer: &Writer,
        native: &[u64],
        evaluations: &Evaluations,
        mixed: &'r mut Row,
    ) -> Option<(&'r [u64], Functions)> {
        let state = self.interpreter.state(thread::is_main())?;
        match self.interpreter.check(state) {
            Checked::Sound => {}
            Checked::Refused => {
                decline(Declined::Layout);
                return None;
            }
            Checked::NotYet | Checked::Not => return None,
        }
        let mut functions = Callers {
            row: Row::new(),
            entries: 0,
            count: 0,
            is_cut: false,
            is_short: false,
        };
        self.functions(writer, state, &mut functions);
        let lacks = |functions: &Callers| match functions.is_cut {
            true => 0,
            false => evaluations.count().saturating_sub(functions.entries),
        };
        if lacks(&functions) > 0
            && let Some(inner) = self.interpreter.inner(state)
        {
            (functions.row.length, functions.entries, functions.count) = (0, 0, 0);
            self.functions(writer, inner, &mut functions);
            self.functions(writer, state, &mut functions);
        }
        if functions.count == 0 {
            return None;
        }
        // If another interpreter runs than the one whose functions are known, these functions are
        // the outer frames.
        let mut left_out = match self.interpreter.is_innermost(state) {
            true => 0,
            false => lacks(&functions),
        };
        let mut rest = functions.row.as_slice().iter().copied();
        for (frame, place) in native.iter().zip(0..) {
            if !evaluations.has(place) {
                mixed.push(*frame);
            } else if left_out > 0 {
                left_out -= 1;
                mixed.push(*frame);
            } else {
                let mut of_this = rest
                    .by_ref()
                    .take_while(|function| *function != ENTRY)
                    .peekable();
                if of_this.peek().is_none() {
                    mixed.push(*frame);
                }
                of_this.for_each(|function| {
                    mixed.push(function);
                });
            }
        }
        // Functions whose native frames were not found are further out.
        rest.filter(|function| *function != ENTRY)
            .for_each(|function| {
                mixed.push(function);
            });
        let is_all = lacks(&functions) == 0
            && !functions.is_cut
            && !functions.is_short
            && self.interpreter.is_innermost(state);
        let told = match is_all {
            true => Functions::Some,
            false => Functions::Unknown,
        };
        Some((mixed.as_slice(), told))
    }

    /// True if a native frame, as recorded, is one of the evaluator.
    #[inline]
    fn runs(&self, frame: u64) -> bool {
        // The call is before its return address; above bit 48 is the number of the module.
        let call = (frame & ((1 << 48) - 1)).wrapping_sub(1);
        let mut parts = self.evaluator.iter().take_while(|part| !part.is_empty());
        parts.any(|part| part.contains(&call))
    }

    /// Adds the functions of a thread state.
    #[inline]
    fn functions(&self, writer: &Writer, state: State, functions: &mut Callers) {
        let take = |step| match step {
            Step::Entry => {
                functions.entries += 1;
                functions.row.push(ENTRY)
            }
            Step::Call(call) => {
                let site = self.site(writer, call);
                functions.count += 1;
                functions.is_short |= site.is_none();
                let has_room = site.is_none_or(|site| functions.row.push(SITE | u64::from(site)));
                functions.is_cut = !has_room || functions.count >= FUNCTIONS;
                !functions.is_cut
            }
        };
        // SAFETY: the state is the calling thread's, it was checked, and nothing of Python runs
        // meanwhile.
        unsafe { self.interpreter.walk(state, take) };
    }

    #[inline]
    fn site(&self, writer: &Writer, call: Call) -> Option<u32> {
        // SAFETY: the call is one of the walk that is under way.
        let key = unsafe { self.interpreter.key(call) }?;
        writer.site(&key, || self.describe(writer, call))
    }

    #[cold]
    #[inline(never)]
    fn describe(&self, writer: &Writer, call: Call) -> Option<Site> {
        // SAFETY: the call is one of the walk that is under way.
        let (name, file, line) =
            unsafe { self.interpreter.describe(call, |text| writer.intern(text)) }?;
        Some(Site { name, file, line })
    }
}

/// Looks for an interpreter after modules were met. Threads that arrive at once all look, so that
/// none of their stacks lacks it.
#[cold]
#[inline(never)]
fn look() -> Option<&'static Python> {
    let met = MET.load(Ordering::Acquire);
    let found = search();
    LOOKED.store(met, Ordering::Release);
    found
}

/// Returns the walk over the objects of the interpreter, if there is one.
pub fn owners() -> Option<Owners> {
    let python = found().or_else(look)?;
    let library = library();
    // SAFETY: names of CPython, found where CPython is.
    unsafe {
        Owners::find(python.interpreter.minor(), |name| {
            linker::symbol(library, name)
        })
    }
}

/// Returns the library that has the interpreter's symbols.
fn library() -> *mut c_void {
    let library = LIBRARY.load(Ordering::Relaxed);
    if library.is_null() {
        libc::RTLD_DEFAULT
    } else {
        library
    }
}

fn search() -> Option<&'static Python> {
    let library = library();
    // SAFETY: names of CPython, found where CPython is.
    let found = unsafe { Interpreter::find(|name: &CStr| linker::symbol(library, name)) }?;
    let interpreter = match found {
        Ok(interpreter) => interpreter,
        Err(why) => {
            decline(why);
            return None;
        }
    };
    let python = Box::new(Python {
        evaluator: gpushim_unwind::parts_of(interpreter.evaluator()),
        interpreter,
    });
    let python = Box::into_raw(python);
    match PYTHON.compare_exchange(ptr::null_mut(), python, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it is never freed.
        Ok(_) => unsafe { python.as_ref() },
        Err(others) => {
            // SAFETY: no other thread has seen it.
            drop(unsafe { Box::from_raw(python) });
            // SAFETY: not null, and never freed.
            unsafe { others.as_ref() }
        }
    }
}

/// Reports once that stacks have no functions of Python.
#[cold]
fn decline(why: Declined) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Ordering::Relaxed) && settings::config().log >= Log::Warn {
        say(&format!("stacks are without Python's functions: {why}"));
    }
}
