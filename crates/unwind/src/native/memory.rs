//! Reads the stack, and other memory that may be unmapped, without a fault.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;

/// Source of the stack words of a walk.
pub trait Memory {
    /// Returns the aligned word at an address; `None` if it must not or cannot be read.
    fn word(&self, address: u64) -> Option<u64>;

    /// Returns [`Memory::word`] for a return address.
    #[inline]
    fn return_address(&self, address: u64) -> Option<u64> {
        self.word(address)
    }

    /// Returns [`Memory::word`] for a frame pointer that a function saved.
    #[inline]
    fn saved_bp(&self, address: u64) -> Option<u64> {
        self.word(address)
    }

    /// Notes that the walk depends on the value of the frame pointer.
    #[inline]
    fn uses_bp(&self) {}

    /// Notes that the walk continues with the registers that a signal interrupted.
    #[inline]
    fn leaves_handler(&self) {}
}

/// A thread's stack from a stack pointer up: all of it can be read.
pub struct ThreadStack {
    low: u64,
    /// Address of the last word.
    last: u64,
}

impl ThreadStack {
    /// Takes the calling thread's stack from `sp` up. `None` if `sp` lies elsewhere: in a
    /// coroutine, or in a signal handler that has a stack of its own.
    #[inline]
    pub fn from(sp: u64) -> Option<ThreadStack> {
        let (low, high) = bounds();
        // SAFETY: this thread's stack, which grows down from `high`.
        (low <= sp && sp < high).then(|| unsafe { ThreadStack::between(sp, high) })
    }

    /// Takes the memory between two addresses as a stack.
    ///
    /// # Safety
    /// All bytes between the two addresses can be read, and `high` is a multiple of 8 and not 0.
    #[inline]
    pub unsafe fn between(low: u64, high: u64) -> ThreadStack {
        ThreadStack {
            low,
            last: high - 8,
        }
    }

    /// Returns the word at an address.
    ///
    /// # Safety
    /// [`Memory::word`] returned one for this address to the same thread, for a stack from there or
    /// a higher address up.
    #[inline]
    pub unsafe fn known_word(&self, address: u64) -> u64 {
        debug_assert!(self.word(address).is_some());
        // SAFETY: it was read before, so it is aligned and within the thread's stack, all of which
        // can be read; volatile, since to the compiler it belongs to other functions.
        unsafe { (address as *const u64).read_volatile() }
    }
}

impl Memory for ThreadStack {
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        if address < self.low || address > self.last || address & 7 != 0 {
            return None;
        }
        // SAFETY: it can be read, as the constructor's caller promised, and the address is aligned;
        // volatile, since to the compiler it belongs to other functions.
        Some(unsafe { (address as *const u64).read_volatile() })
    }
}

/// A stack of unknown extent. It is read through the kernel, which refuses unmapped pages.
/// The page of the stack pointer is certainly mapped.
pub struct UnknownStack {
    low: u64,
}

impl UnknownStack {
    /// Takes the memory from `sp` up as a stack.
    pub fn from(sp: u64) -> UnknownStack {
        UnknownStack { low: sp }
    }
}

impl Memory for UnknownStack {
    fn word(&self, address: u64) -> Option<u64> {
        if address & 7 != 0 {
            return None;
        }
        if address >= self.low && address >> 12 == self.low >> 12 {
            // SAFETY: in the page of the stack pointer, which is in use, and above it; aligned.
            return Some(unsafe { (address as *const u64).read_volatile() });
        }
        read(address).map(u64::from_ne_bytes)
    }
}

/// Copies bytes from any address of this process. `None` if they are not all mapped and readable,
/// or if the process may not ask (`process_vm_readv` is forbidden in some containers).
pub fn read<const N: usize>(address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let to = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: N,
    };
    let from = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: N,
    };
    // SAFETY: the kernel checks what it reads, and writes at most N bytes into `bytes`.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
    (usize::try_from(copied) == Ok(N)).then_some(bytes)
}

/// Lowest address of the calling thread's stack, and the address after its last byte; equal if
/// unknown.
#[inline]
fn bounds() -> (u64, u64) {
    thread_local! {
        static BOUNDS: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
    }
    BOUNDS.with(|known| {
        known.get().unwrap_or_else(|| {
            let bounds = ask().unwrap_or_default();
            known.set(Some(bounds));
            bounds
        })
    })
}

/// Asks the thread library, which reads `/proc/self/maps` for the main thread.
#[cold]
fn ask() -> Option<(u64, u64)> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: pthread_getattr_np initialises the attributes if it gives 0, and only then are they used
    // and destroyed; the out pointers are valid.
    let failed = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let failed = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size) != 0;
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        failed
    };
    let low = low as u64;
    let high = low.checked_add(size as u64)? & !7;
    (!failed && high >= 8).then_some((low, high))
}
