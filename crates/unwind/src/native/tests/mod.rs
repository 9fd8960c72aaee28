//! Tests with real stacks, walked by this walker and by the `backtrace` crate, and with made-up
//! ones.

mod calls;
mod fuzz;
mod known;
mod objects;
mod parts;
mod run_time_code;
mod stacks;
mod tables;
mod threads;

use std::ffi::{CStr, CString, c_char, c_void};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

use super::walk;
use crate::{Frames, module_of, portable};

/// Calls `f`, in a frame of its own.
#[inline(never)]
fn framed<R>(f: impl FnOnce() -> R) -> R {
    let result = f();
    black_box(());
    result
}

/// Walks the caller's frames. The `backtrace` crate must find the same, except the first, which is
/// the call site in this function.
#[inline(always)]
fn walked() -> Vec<u64> {
    compared(walk)
}

#[inline(never)]
fn compared(walk: extern "C" fn(&mut Frames) -> usize) -> Vec<u64> {
    let (mut ours, mut theirs) = (Frames::new(), Frames::new());
    let count = walk(&mut ours);
    portable::walk(&mut theirs);
    let (ours, theirs) = (ours.as_slice(), theirs.as_slice());
    assert_eq!(count, ours.len());
    assert!(ours[0].abs_diff(theirs[0]) < 1000, "{ours:x?} {theirs:x?}");
    assert_eq!(ours[1..], theirs[1..], "{ours:x?} {theirs:x?}");
    ours[1..].to_vec()
}

/// Walks without a comparison, from the caller of the caller on.
#[inline(never)]
fn ours() -> Vec<u64> {
    let mut frames = Frames::new();
    walk(&mut frames);
    frames.as_slice()[2..].to_vec()
}

/// Returns a pointer to `f` and the C function that calls it, for callbacks.
fn callback<F: FnMut()>(f: &mut F) -> (extern "C" fn(*mut c_void), *mut c_void) {
    extern "C" fn call<F: FnMut()>(f: *mut c_void) {
        // SAFETY: the pointer below, while the closure is borrowed.
        unsafe { (*f.cast::<F>())() };
        black_box(());
    }
    (call::<F>, std::ptr::from_mut(f).cast())
}

/// A shared object made from C by gcc for one test, with the options of optimised code.
struct Library {
    handle: *mut c_void,
    _directory: tempfile::TempDir,
}

impl Library {
    fn new(source: &str, options: &[&str]) -> Library {
        let directory = tempfile::tempdir().unwrap();
        let (code, object) = (directory.path().join("t.c"), directory.path().join("t.so"));
        std::fs::write(&code, source).unwrap();
        let gcc = Command::new("gcc")
            .args(["-O2", "-fomit-frame-pointer", "-fPIC", "-shared", "-o"])
            .args([&object, &code])
            .args(options)
            .output()
            .expect("gcc");
        assert!(gcc.status.success(), "{gcc:?}");
        Library {
            handle: Library::open(&object),
            _directory: directory,
        }
    }

    fn open(path: &Path) -> *mut c_void {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a C string; the library has no constructors.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        handle
    }

    /// Returns the frames that lie in the library.
    fn frames(&self, frames: &[u64]) -> Vec<u64> {
        let own = module_of(self.symbol(c"call") as u64).unwrap();
        let is_own = |f: &u64| (own.begin..own.end).contains(f);
        frames.iter().copied().filter(is_own).collect()
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a handle that is open, and a C string.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr().cast::<c_char>()) };
        assert!(!symbol.is_null());
        symbol
    }

    /// Calls the library's function of this name, which calls `f` back.
    fn call(&self, name: &CStr, number: usize, mut f: impl FnMut()) {
        type Function = extern "C" fn(extern "C" fn(*mut c_void), *mut c_void, usize) -> usize;
        // SAFETY: all functions of the sources below have this signature.
        let function = unsafe { std::mem::transmute::<*mut c_void, Function>(self.symbol(name)) };
        let (call, data) = callback(&mut f);
        function(call, data, number);
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and nothing of the library is in use.
        unsafe { libc::dlclose(self.handle) };
        super::code_changed();
    }
}
