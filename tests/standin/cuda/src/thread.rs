//! State of the driver for each thread.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::Mode;

thread_local! {
    // Never dropped: programs call the driver during the destruction of a thread's storage.
    static STACK: ManuallyDrop<RefCell<Vec<u64>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
    static ID: Cell<u64> = const { Cell::new(0) };
    static AT_END: Cell<Option<libc::pthread_key_t>> = const { Cell::new(None) };
    static CAPTURE_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Returns the handle of the current context; 0 if there is none.
pub fn current() -> u64 {
    STACK.with(|stack| stack.borrow().last().copied().unwrap_or(0))
}

/// Pushes a context onto the thread's stack and so makes it current.
pub fn push(context: u64) {
    ends();
    STACK.with(|stack| stack.borrow_mut().push(context));
}

/// Pops the current context from the thread's stack.
pub fn pop() -> Option<u64> {
    STACK.with(|stack| stack.borrow_mut().pop())
}

/// Replaces the current context by another; 0 pops it.
pub fn set(context: u64) {
    pop();
    if context != 0 {
        push(context);
    }
}

/// Returns a number of the thread that no other thread of the process has or had.
pub fn id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ID.with(|id| {
        if id.get() == 0 {
            id.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        id.get()
    })
}

/// Makes the thread's default streams end with the thread.
pub fn ends() {
    if AT_END.get().is_some() {
        return;
    }
    static KEY: OnceLock<Option<libc::pthread_key_t>> = OnceLock::new();
    let key = KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: `key` is a local to write; the destructor is an `extern "C"` function of this
        // library, which stays.
        let made = unsafe { libc::pthread_key_create(&mut key, Some(at_end)) };
        (made == 0).then_some(key)
    });
    if let Some(key) = key {
        AT_END.set(Some(*key));
        // SAFETY: the key is live.
        unsafe { libc::pthread_setspecific(*key, FIRST_ROUND as *const _) };
    }
}

/// Values of the key, by round of destructors. In the first round, destructors of other keys may
/// still use the streams.
const FIRST_ROUND: usize = 1;
const SECOND_ROUND: usize = 2;

extern "C" fn at_end(round: *mut libc::c_void) {
    match AT_END.get() {
        Some(key) if round as usize == FIRST_ROUND => {
            // SAFETY: the key is live. A value set here makes the system call the destructor once
            // more.
            unsafe { libc::pthread_setspecific(key, SECOND_ROUND as *const _) };
        }
        _ => {
            AT_END.set(None);
            crate::stream::thread_gone(id());
            STACK.with(|stack| *stack.borrow_mut() = Vec::new());
        }
    }
}

/// Returns the thread's capture mode. The mode decides which unsafe calls the thread may make.
pub fn capture_mode() -> Mode {
    CAPTURE_MODE.get()
}

/// Sets the thread's capture mode and returns the former one.
pub fn exchange_capture_mode(mode: Mode) -> Mode {
    CAPTURE_MODE.replace(mode)
}
