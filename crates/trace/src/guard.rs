//! Guards of mapped files that another program may truncate: a fault in one does not end the
//! process.
//!
//! An access beyond the end of a mapped file is a SIGBUS. The handler replaces the whole mapping by
//! private memory, notes that the mapping has lost its file, and returns. The access is then
//! repeated and succeeds. A fault at any other address goes to the handler installed before, called
//! as the kernel would have called it.
//!
//! Two cases are not covered; the fault then ends the thread or process as without this handler:
//!
//! - the thread blocks SIGBUS;
//! - the process installs another handler later.
//!
//! The writer's background thread therefore calls [`Guard::probe`] at each poll.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::{io, iter, ptr};

/// Number of mappings in a block of slots. A process that writes has one block, and guards no
/// further mappings.
const SLOTS: usize = 64;

/// Addresses of a mapping; both 0 if the slot has none.
#[derive(Debug)]
struct Slot {
    is_taken: AtomicBool,
    /// True if a reader made the mapping.
    is_read: AtomicBool,
    from: AtomicUsize,
    to: AtomicUsize,
    is_lost: AtomicBool,
    /// Bytes of the mapping before the access that found it lost.
    lost_at: AtomicUsize,
}

/// Slots, and the next block.
struct Block {
    slots: [Slot; SLOTS],
    next: AtomicPtr<Block>,
}

impl Block {
    const fn new() -> Block {
        Block {
            slots: [const {
                Slot {
                    is_taken: AtomicBool::new(false),
                    is_read: AtomicBool::new(false),
                    from: AtomicUsize::new(0),
                    to: AtomicUsize::new(0),
                    is_lost: AtomicBool::new(false),
                    lost_at: AtomicUsize::new(0),
                }
            }; SLOTS],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn after(&self) -> Option<&'static Block> {
        // Acquire: the block's slots come before its address.
        let next = self.next.load(Ordering::Acquire);
        // SAFETY: null, or a block that is never freed.
        unsafe { next.as_ref() }
    }
}

static GUARDED: Block = Block::new();

fn blocks() -> impl Iterator<Item = &'static Block> {
    iter::successors(Some(&GUARDED), |block| block.after())
}

/// Takes a free slot of the existing blocks.
fn take() -> Option<&'static Slot> {
    let mut slots = blocks().flat_map(|block| &block.slots);
    slots.find(|slot| !slot.is_taken.swap(true, Ordering::Acquire))
}

/// Appends a block after the last one, unless another thread does.
fn grow() {
    let new = Box::into_raw(Box::new(Block::new()));
    let put = blocks().last().is_some_and(|last| {
        // Release: as in `Block::after`.
        let (put, none) = (Ordering::Release, Ordering::Relaxed);
        let next = &last.next;
        next.compare_exchange(ptr::null_mut(), new, put, none)
            .is_ok()
    });
    if !put {
        // SAFETY: it was made above, and no other thread has its address.
        drop(unsafe { Box::from_raw(new) });
    }
}

/// True if a mapping that a reader made has lost its file.
static READ_LOST: AtomicBool = AtomicBool::new(false);

/// Action of SIGBUS before the handler was installed.
struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::zeroed()));

/// A mapping that is guarded until [`Guard::release`], which must precede the end of the mapping.
#[derive(Debug)]
pub(crate) struct Guard {
    slot: Option<&'static Slot>,
    is_released: AtomicBool,
}

impl Guard {
    /// Guards a writer's mapping of `bytes` bytes from address `from` on. The first call installs
    /// the signal handler.
    pub fn new(from: usize, bytes: usize) -> Guard {
        Guard::with(take(), false, from, bytes)
    }

    /// Guards a mapping like [`Guard::new`], but one that is only read. There is a slot for each
    /// reader.
    pub fn of_reader(from: usize, bytes: usize) -> Guard {
        let slot = iter::repeat_with(take).find_map(|slot| {
            if slot.is_none() {
                grow();
            }
            slot
        });
        Guard::with(slot, true, from, bytes)
    }

    fn with(slot: Option<&'static Slot>, is_read: bool, from: usize, bytes: usize) -> Guard {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        if let Some(slot) = slot {
            slot.is_lost.store(false, Ordering::Relaxed);
            slot.is_read.store(is_read, Ordering::Relaxed);
            slot.to.store(from + bytes, Ordering::Relaxed);
            // Release: the handler sees the end of a range whose beginning it sees.
            slot.from.store(from, Ordering::Release);
        }
        Guard {
            slot,
            is_released: AtomicBool::new(false),
        }
    }

    #[inline]
    fn slot(&self) -> Option<&'static Slot> {
        if self.is_released.load(Ordering::Relaxed) {
            return None;
        }
        self.slot
    }

    /// Ends the guard before the mapping ends.
    pub fn release(&self) {
        let slot = self.slot();
        if let Some(slot) = slot.filter(|_| !self.is_released.swap(true, Ordering::Relaxed)) {
            slot.from.store(0, Ordering::Relaxed);
            slot.to.store(0, Ordering::Relaxed);
            // Release: the next owner's range comes after.
            slot.is_taken.store(false, Ordering::Release);
        }
    }

    /// True if the mapping has lost its file: its content is private memory, and nothing is kept.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.slot()
            .is_some_and(|slot| slot.is_lost.load(Ordering::Relaxed))
    }

    /// Returns the bytes of the mapping before the access that found its file lost.
    pub fn lost_at(&self) -> Option<usize> {
        let slot = self.slot().filter(|_| self.is_lost())?;
        Some(slot.lost_at.load(Ordering::Relaxed))
    }

    /// Checks that the file still reaches the mapping's end, and puts private memory in its place
    /// if not. Before Linux 5.14 it does nothing. The last page must have space: on tmpfs a read of
    /// a hole takes some, so that a full one would look like a truncated file.
    pub fn probe(&self) {
        let Some(slot) = self.slot() else { return };
        let (from, to) = (
            slot.from.load(Ordering::Relaxed),
            slot.to.load(Ordering::Relaxed),
        );
        if self.is_lost() || to == from {
            return;
        }
        let page = (to - 1) & !(PAGE - 1);
        // SAFETY: the page is the mapping's last one, and advice to read it changes nothing in it.
        let result = unsafe { libc::madvise(page as *mut _, PAGE, libc::MADV_POPULATE_READ) };
        if result != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
            replace(slot, from, to, page);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.release();
    }
}

const PAGE: usize = 4096;

/// True if a file mapped by a reader of this process has lost bytes. Reads of it since then give
/// zeros.
pub(crate) fn read_lost() -> bool {
    READ_LOST.load(Ordering::Relaxed)
}

/// Puts private memory in place of a mapping with an address that could not be read. Safe in a
/// signal handler.
fn replace(slot: &Slot, from: usize, to: usize, address: usize) -> bool {
    // SAFETY: the range is a mapping that its owner keeps until it has taken the range out of the
    // slot. All accesses to it are atomic ones of words that may have any value.
    let at = unsafe {
        libc::mmap(
            from as *mut _,
            to - from,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        return false;
    }
    if !slot.is_lost.swap(true, Ordering::Relaxed) {
        slot.lost_at.store(address - from, Ordering::Relaxed);
    }
    if slot.is_read.load(Ordering::Relaxed) {
        READ_LOST.store(true, Ordering::Relaxed);
    }
    true
}

fn install() {
    // SAFETY: zeros are a valid sigaction; the old one is stored before the handler that reads it
    // can run.
    unsafe {
        let before = BEFORE.0.get().cast::<libc::sigaction>();
        if libc::sigaction(libc::SIGBUS, ptr::null(), before) != 0 {
            return;
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus;
        ours.sa_sigaction = handler as usize;
        // Runs on the stack that the host's own handler expects.
        let kept = libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NODEFER;
        ours.sa_flags = libc::SA_SIGINFO | ((*before).sa_flags & kept);
        ours.sa_mask = (*before).sa_mask;
        libc::sigaction(libc::SIGBUS, &ours, ptr::null_mut());
    }
}

extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a description, and for a fault the address is in it.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 {
        for slot in blocks().flat_map(|block| &block.slots) {
            // Acquire: the end read next belongs to this beginning.
            let from = slot.from.load(Ordering::Acquire);
            let to = slot.to.load(Ordering::Relaxed);
            if from != 0 && (from..to).contains(&address) && replace(slot, from, to, address) {
                return;
            }
        }
    }
    hand_on(signal, info, context);
}

/// Performs the action that the signal had before.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: stored before this handler was installed, and only read since.
    let before = unsafe { (*BEFORE.0.get()).assume_init_ref() };
    // SAFETY: as in `on_bus`.
    let is_fault = unsafe { (*info).si_code } > 0;
    match before.sa_sigaction {
        // A fault that is ignored ends the process, too.
        libc::SIG_IGN if !is_fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: the old action is a valid one. The fault comes again when this returns; a
            // signal that was sent is sent again, and delivered when this returns.
            unsafe {
                libc::sigaction(signal, before, ptr::null_mut());
                if !is_fault {
                    let (process, thread) = (libc::getpid(), libc::syscall(libc::SYS_gettid));
                    libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info);
                }
            }
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO the address is that of a function of these arguments.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without SA_SIGINFO the address is that of a function of the signal's number.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
