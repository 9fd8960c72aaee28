//! Tests with stacks that are not the thread's: of signal handlers and coroutines.

use std::cell::RefCell;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use super::walked;
use crate::Frames;
use crate::native::memory::{Memory, ThreadStack, UnknownStack};

thread_local!(static SEEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });

/// A mapping with a page on either side that cannot be accessed.
pub struct Guarded {
    base: *mut u8,
    /// Bytes without the two guard pages.
    len: usize,
}

impl Guarded {
    pub fn new(len: usize) -> Guarded {
        // SAFETY: a new mapping, whose inner part is then opened.
        let base = unsafe {
            let base = libc::mmap(
                std::ptr::null_mut(),
                len + 8192,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(base, libc::MAP_FAILED);
            let inner = base.byte_add(4096);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(libc::mprotect(inner, len, access), 0);
            base.cast()
        };
        Guarded { base, len }
    }

    pub fn low(&self) -> *mut u8 {
        self.base.wrapping_add(4096)
    }

    pub fn high(&self) -> *mut u8 {
        self.low().wrapping_add(self.len)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made above.
        unsafe { libc::munmap(self.base.cast(), self.len + 8192) };
    }
}

extern "C" fn handler(_: i32) {
    SEEN.set(walked());
}

/// Returns the frames in a handler for a signal that this thread sends itself.
pub fn in_a_handler(flags: i32) -> Vec<u64> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _handler = ONE_AT_A_TIME.lock().unwrap();
    // SAFETY: the handler is fit for a signal raised here; the signal number is its caller's.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        let signal = libc::SIGRTMIN() + 3;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        assert_eq!(libc::pthread_kill(libc::pthread_self(), signal), 0);
    }
    SEEN.take()
}

#[test]
fn through_a_signal_handler_on_either_stack() {
    let same = in_a_handler(0);
    let stack = Guarded::new(256 << 10);
    let used = libc::stack_t {
        ss_sp: stack.low().cast(),
        ss_flags: 0,
        ss_size: stack.len,
    };
    let mut old = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: the stack is mapped for as long as it is in use.
    assert_eq!(unsafe { libc::sigaltstack(&used, old.as_mut_ptr()) }, 0);
    let other = in_a_handler(libc::SA_ONSTACK);
    // SAFETY: what the call above left.
    let back = unsafe { libc::sigaltstack(old.as_ptr(), std::ptr::null_mut()) };
    assert_eq!(back, 0);
    // The frames are the same, up to the two calls in this function.
    assert!(same.len() > 10);
    assert_eq!(same.len(), other.len());
    let differ = same.iter().zip(&other).filter(|(a, b)| a != b).count();
    assert_eq!(differ, 1, "{same:x?} {other:x?}");
}

/// Makes frames of more than a page each.
#[inline(never)]
fn large(levels: usize) -> usize {
    let mut room = [levels as u8; 5000];
    black_box(&mut room);
    match levels {
        0 => SEEN.set(walked()),
        _ => room[0] = large(levels - 1) as u8,
    }
    black_box(&room)[0].into()
}

#[test]
fn in_a_coroutine() {
    extern "C" fn body() {
        large(8);
    }
    let stack = Guarded::new(256 << 10);
    // SAFETY: contexts as makecontext and swapcontext want them, on a stack that outlives the call.
    unsafe {
        let mut back: libc::ucontext_t = std::mem::zeroed();
        let mut there: libc::ucontext_t = std::mem::zeroed();
        assert_eq!(libc::getcontext(&mut there), 0);
        there.uc_stack.ss_sp = stack.low().cast();
        there.uc_stack.ss_size = stack.len;
        there.uc_link = &mut back;
        libc::makecontext(&mut there, body, 0);
        assert_eq!(libc::swapcontext(&mut back, &there), 0);
    }
    // Nine frames of large, the body, and the C library's first frame.
    assert_eq!(SEEN.take().len(), 11);
}

#[test]
fn no_word_outside_the_stack() {
    let stack = Guarded::new(4096);
    let (low, high) = (stack.low() as u64, stack.high() as u64);
    // SAFETY: the mapping, which no other code uses.
    let known = unsafe {
        stack.low().write_bytes(1, 4096);
        ThreadStack::between(low + 64, high)
    };
    let word = Some(0x0101_0101_0101_0101);
    assert_eq!(known.word(low + 64), word);
    assert_eq!(known.word(high - 8), word);
    for address in [
        low + 56,
        low + 65,
        high - 7,
        high,
        0,
        u64::MAX,
        u64::MAX - 7,
    ] {
        assert_eq!(known.word(address), None, "{address:x}");
    }
    let unknown = UnknownStack::from(low + 64);
    // Words in other pages are read through the kernel, which refuses the guard pages.
    assert_eq!(unknown.word(low), word);
    assert_eq!(unknown.word(high - 8), word);
    for address in [low - 8, low + 65, high, 0, u64::MAX - 7] {
        assert_eq!(unknown.word(address), None, "{address:x}");
    }
    assert!(ThreadStack::from(low).is_none());
    let mut frames = Frames::new();
    assert!(ThreadStack::from(&raw mut frames as u64).is_some());
}
