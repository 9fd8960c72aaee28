//! What the driver keeps for each thread.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::Mode;

thread_local! {
    // Never dropped, a few bytes a thread: programs call the driver while a thread's storage goes away.
    static STACK: ManuallyDrop<RefCell<Vec<u64>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    static ID: Cell<u64> = const { Cell::new(0) };
    static CAPTURE_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// The current context's handle; 0 if there is none.
pub fn current() -> u64 {
    STACK.with(|stack| stack.borrow().last().copied().unwrap_or(0))
}

/// Makes a context current above the one that is.
pub fn push(context: u64) {
    STACK.with(|stack| stack.borrow_mut().push(context));
}

/// Takes the current context off.
pub fn pop() -> Option<u64> {
    STACK.with(|stack| stack.borrow_mut().pop())
}

/// Puts a context in the place of the current one; 0 takes that off.
pub fn set(context: u64) {
    pop();
    if context != 0 {
        push(context);
    }
}

/// A number for the thread that no other thread of the process has or had.
pub fn id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ID.with(|id| {
        if id.get() == 0 {
            id.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        id.get()
    })
}

/// How the thread's calls interact with captures.
pub fn capture_mode() -> Mode {
    CAPTURE_MODE.get()
}

/// Changes how the thread's calls interact with captures; the former way.
pub fn exchange_capture_mode(mode: Mode) -> Mode {
    CAPTURE_MODE.replace(mode)
}
