//! Names by which a Python program reaches device memory: runs the walk over the interpreter's
//! objects.
//!
//! The walk itself is a program in Python, in the folder `owners`; its interface is in README.md
//! there. It is compiled once in a namespace of its own, and called while the thread holds the GIL.

use std::ffi::{CStr, c_char, c_double, c_int, c_void};
use std::ptr;
use std::sync::Mutex;

mod api;
mod collectable;
mod slots;

use api::{Api, Object};

/// Source of the walk, see `owners/README.md`.
const PROGRAM: &CStr = match CStr::from_bytes_with_nul(
    concat!(
        include_str!("owners/objects.py"),
        include_str!("owners/walk.py"),
        include_str!("owners/garbage.py"),
        include_str!("owners/entry.py"),
        "\0"
    )
    .as_bytes(),
) {
    Ok(program) => program,
    Err(_) => panic!("the program contains a zero byte"),
};

/// File name of the program's frames.
const FILE: &CStr = c"<gpushim owners>";

/// Blocks that a walk looks for, and its limits.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    /// Begin and end of each block, addresses, sorted and without overlaps.
    pub blocks: &'a [u64],
    /// Seconds after which the walk stops.
    pub budget_s: f64,
    /// True to search the modules of libraries too, which takes longer.
    pub is_thorough: bool,
}

/// Result of a walk over the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// It ran to its end or until its time was up, and gave its text.
    Done,
    /// A signal handler of the program raised an exception meanwhile, which is the thread's current
    /// one.
    Raised,
    /// It failed, and each further walk would fail too.
    Failed,
}

/// Walk of an interpreter, compiled at its first use.
#[derive(Debug)]
pub struct Owners {
    api: Api,
    /// The function `entry`, the methods `slots` and `collectable`; null before the first walk.
    program: Mutex<[Object; 3]>,
}

// SAFETY: the two objects are used only by the thread that holds the GIL.
unsafe impl Send for Owners {}
// SAFETY: as above, and the mutex orders who sets them.
unsafe impl Sync for Owners {}

impl Owners {
    /// Makes the walk of an interpreter of version 3 and `minor`, whose functions `look` finds by
    /// name. `None` if a function is missing, or the version has no walk.
    ///
    /// # Safety
    /// The addresses that `look` gives are CPython's functions and objects of these names, or null.
    pub unsafe fn find(minor: u8, look: impl Fn(&CStr) -> *mut c_void) -> Option<Owners> {
        if !(8..=14).contains(&minor) {
            return None;
        }
        // SAFETY: the caller promises it.
        let api = unsafe { Api::find(minor, look) }?;
        Some(Owners {
            api,
            program: Mutex::new([ptr::null_mut(); 3]),
        })
    }

    /// Makes the main thread call `act` between two of its Python instructions; needs no GIL. False
    /// if its queue is full, or the interpreter does not run. `act` returns 0, or -1 with an
    /// exception set.
    pub fn at_safe_point(&self, act: unsafe extern "C" fn(*mut c_void) -> c_int) -> bool {
        // SAFETY: CPython's functions, which any thread may call; `act` lives as long as the
        // process.
        unsafe {
            (self.api.is_initialized)() != 0 && (self.api.add_pending)(act, ptr::null_mut()) == 0
        }
    }

    /// Runs `act` with the GIL, on a thread without Python frames. It waits for the GIL, and must
    /// return before the interpreter ends. False if no interpreter runs.
    pub fn with_gil(&self, act: impl FnOnce()) -> bool {
        // SAFETY: CPython's functions, which any thread may call while the interpreter runs.
        unsafe {
            if (self.api.is_initialized)() == 0 {
                return false;
            }
            let before = (self.api.take_gil)();
            act();
            (self.api.give_gil)(before);
        }
        true
    }

    /// Runs `act` without the GIL, so that other threads can take it.
    ///
    /// # Safety
    /// The thread holds the GIL, and `act` uses nothing of Python.
    pub unsafe fn without_gil(&self, act: impl FnOnce()) {
        // SAFETY: the caller promises the GIL, which it has again afterwards.
        unsafe {
            let state = (self.api.pause)();
            act();
            (self.api.resume)(state);
        }
    }

    /// Compiles the program, some 20 ms, so that the first walk does not have to.
    ///
    /// # Safety
    /// The conditions of [`Owners::walk`].
    pub unsafe fn prepare(&self) -> Walked {
        // SAFETY: the caller promises it.
        match unsafe { self.compiled() } {
            Some(_) => Walked::Done,
            // SAFETY: as above.
            None => unsafe { self.failure() },
        }
    }

    /// Walks, and gives `take` the text of `entry`.
    ///
    /// # Safety
    /// The thread holds the GIL of the interpreter, and has no exception set.
    pub unsafe fn walk(&self, walk: &Walk<'_>, take: impl FnOnce(&str)) -> Walked {
        let api = &self.api;
        // SAFETY: the caller promises the GIL.
        let Some([entry, slots, collectable]) = (unsafe { self.compiled() }) else {
            // SAFETY: as above.
            return unsafe { self.failure() };
        };
        // SAFETY: as above; the blocks are bytes that are copied, and the tuple takes the
        // references.
        let text = unsafe {
            let bytes = api.bytes(walk.blocks);
            let budget = (api.float)(walk.budget_s as c_double);
            let thorough = (api.long)(c_int::from(walk.is_thorough).into());
            let arguments = api.tuple(&[
                bytes,
                budget,
                thorough,
                api.more(slots),
                api.more(collectable),
            ]);
            api.untraced(|| api.call(entry, arguments))
        };
        if text.is_null() {
            // SAFETY: as above.
            return unsafe { self.failure() };
        }
        // SAFETY: as above; the text is ours until it is dropped.
        unsafe {
            if let Some(text) = api.text(text) {
                take(text);
            }
            api.drop(text);
        }
        Walked::Done
    }

    /// Distinguishes a failure of the walk from an exception that a signal handler of the program
    /// raised.
    ///
    /// # Safety
    /// The conditions of [`Owners::walk`].
    unsafe fn failure(&self) -> Walked {
        // SAFETY: the caller promises the GIL.
        unsafe {
            if self.api.is_ours(FILE) {
                (self.api.clear)();
                return Walked::Failed;
            }
        }
        Walked::Raised
    }

    /// Returns the function `entry` and the methods `slots` and `collectable`, borrowed. If it
    /// returns `None`, an exception is set.
    ///
    /// # Safety
    /// The conditions of [`Owners::walk`].
    unsafe fn compiled(&self) -> Option<[Object; 3]> {
        let mut program = self.program.lock().ok()?;
        if program[0].is_null() {
            let api = &self.api;
            // SAFETY: the caller promises the GIL; the namespace lives as long as `entry`, which
            // refers to it.
            unsafe {
                let space = (api.dict)();
                (api.put)(space, c"__builtins__".as_ptr(), (api.builtins)());
                let code = (api.compile)(PROGRAM.as_ptr(), FILE.as_ptr(), api::FILE_INPUT);
                let done = match code.is_null() {
                    true => code,
                    false => api.untraced(|| (api.evaluate)(code, space, space)),
                };
                let entry = match done.is_null() {
                    true => done,
                    false => (api.get)(space, c"entry".as_ptr()),
                };
                api.drop(code);
                api.drop(done);
                if entry.is_null() {
                    api.drop(space);
                    return None;
                }
                let slots = api.method(&slots::METHOD);
                let collectable = api.method(&collectable::METHOD);
                if [entry, slots, collectable]
                    .iter()
                    .any(|part| part.is_null())
                {
                    return None;
                }
                *program = [api.more(entry), slots, collectable];
            }
        }
        Some(*program)
    }

    /// Registers `act` in the module `atexit`; the interpreter calls it when it ends.
    ///
    /// # Safety
    /// The conditions of [`Owners::walk`].
    pub unsafe fn at_end(&self, act: Method) -> bool {
        // SAFETY: the caller promises the GIL.
        unsafe { self.api.register_at_end(act) }
    }
}

/// Method without arguments. It gets two objects that it does not use, and returns
/// [`Owners::none`].
pub type Method = unsafe extern "C" fn(*mut c_void, *mut c_void) -> *mut c_void;

impl Owners {
    /// Returns a new reference to `None`, for a [`Method`].
    ///
    /// # Safety
    /// The conditions of [`Owners::walk`].
    pub unsafe fn none(&self) -> *mut c_void {
        // SAFETY: the caller promises the GIL.
        unsafe { self.api.more(self.api.none) }
    }
}

/// Table entry of CPython, `PyMethodDef` (Include/methodobject.h).
#[repr(C)]
struct MethodDef {
    name: *const c_char,
    function: Method,
    flags: c_int,
    about: *const c_char,
}

// SAFETY: it is never changed, and points at constants.
unsafe impl Sync for MethodDef {}
