//! Space for a file that is mapped whole and grows as it is used.
//!
//! The file has its full length from the start and no blocks: a hole. A write into a hole of a full
//! disk is a fault that ends the process. So each page is made present before its first write,
//! which takes its space on the disk. `MADV_POPULATE_WRITE` does that: it fails where a write would
//! fault, and needs no descriptor. Before Linux 5.14 fallocate(2) does it, through a descriptor
//! held only during the call.

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushim_descriptors::Identity;

use super::guard::Guard;

/// Bytes of a page, the unit of tracked space.
const PAGE: usize = 4096;

/// Space on the disk of a mapped file.
#[derive(Debug)]
pub(crate) struct Space {
    /// First address of the mapping.
    base: usize,
    bytes: usize,
    path: PathBuf,
    identity: Identity,
    /// Bits of the pages, up to the tracked length; a bit is set when its page has space.
    pages: Box<[AtomicU64]>,
    /// True if the disk was full; [`Space::retry`] asks it again.
    is_full: AtomicBool,
    /// True if the disk was full at least once.
    was_full: AtomicBool,
    guard: Guard,
    /// True if a test simulates a full disk.
    #[cfg(test)]
    is_refused: AtomicBool,
}

impl Space {
    /// Returns the space of a file mapped at an address. Pages are tracked up to `tracked` bytes;
    /// the caller tracks the pages beyond. `None` if there is not enough memory.
    pub fn new(
        (base, bytes): (usize, usize),
        tracked: usize,
        path: PathBuf,
        identity: Identity,
    ) -> Option<Space> {
        let words = tracked.div_ceil(PAGE).div_ceil(64);
        let mut pages = Vec::new();
        pages.try_reserve_exact(words).ok()?;
        pages.resize_with(words, || AtomicU64::new(0));
        Some(Space {
            base,
            bytes,
            path,
            identity,
            pages: pages.into_boxed_slice(),
            is_full: AtomicBool::new(false),
            was_full: AtomicBool::new(false),
            guard: Guard::new(base, bytes),
            #[cfg(test)]
            is_refused: AtomicBool::new(false),
        })
    }

    /// Returns the identity of the file.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// True if these bytes, at least one, have space; takes it if not. Makes no system call if they
    /// have space.
    #[inline]
    pub fn ensure(&self, at: usize, bytes: usize) -> bool {
        let (first, last) = (at / PAGE, (at + bytes.max(1) - 1) / PAGE);
        // A fast path for one page or two, as nearly all callers have.
        let has =
            self.has(first) && (first == last || (first + 1..=last).all(|page| self.has(page)));
        has || self.take(first, last)
    }

    /// True if the page of a byte has space.
    #[inline]
    pub fn is_present(&self, at: usize) -> bool {
        self.has(at / PAGE)
    }

    #[inline]
    fn has(&self, page: usize) -> bool {
        let word = self.pages.get(page / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (page % 64) & 1 != 0)
    }

    #[cold]
    fn take(&self, first: usize, last: usize) -> bool {
        if !self.reserve(first * PAGE, (last + 1 - first) * PAGE) {
            return false;
        }
        for page in first..=last {
            if let Some(word) = self.pages.get(page / 64) {
                word.fetch_or(1 << (page % 64), Ordering::Relaxed);
            }
        }
        true
    }

    /// Takes space for these bytes, even if they have it. `false` if there is none.
    pub fn reserve(&self, at: usize, bytes: usize) -> bool {
        if self.is_full.load(Ordering::Relaxed) || self.is_lost() {
            return false;
        }
        let end = at.saturating_add(bytes).next_multiple_of(PAGE);
        let (at, end) = (at / PAGE * PAGE, end.min(self.bytes));
        let Some(length) = end.checked_sub(at).filter(|length| *length > 0) else {
            return false;
        };
        #[cfg(test)]
        if self.is_refused.load(Ordering::Relaxed) {
            self.was_full.store(true, Ordering::Relaxed);
            return false;
        }
        let taken = populate(self.base + at, length).unwrap_or_else(|| self.allocate(at, length));
        if !taken {
            self.is_full.store(true, Ordering::Relaxed);
            self.was_full.store(true, Ordering::Relaxed);
        }
        taken
    }

    /// Takes space by fallocate(2), in the file that was created.
    fn allocate(&self, at: usize, length: usize) -> bool {
        let Ok(file) = self.identity.open(&self.path) else {
            return false;
        };
        let (Ok(at), Ok(length)) = (at.try_into(), length.try_into()) else {
            return false;
        };
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open for as long as `file` lives.
        unsafe { libc::fallocate(file.as_raw_fd(), keep, at, length) == 0 }
    }

    /// Allows the disk to be asked again, and checks if the file was truncated.
    pub fn retry(&self) {
        self.is_full.store(false, Ordering::Relaxed);
        self.guard.probe();
    }

    /// Simulates a full disk after this call.
    #[cfg(test)]
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// True if the disk was full at least once.
    pub fn was_full(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }

    /// True if the file was truncated: nothing more is kept.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Releases the guard before the mapping ends.
    pub fn close(&self) {
        self.guard.release();
    }
}

/// Makes the pages at an address present and writable. `None` if this kernel cannot.
fn populate(at: usize, length: usize) -> Option<bool> {
    for _ in 0..8 {
        // SAFETY: the range is within the mapping, and to make its pages present changes nothing in
        // them.
        let result =
            unsafe { libc::madvise(at as *mut libc::c_void, length, libc::MADV_POPULATE_WRITE) };
        if result == 0 {
            return Some(true);
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINVAL | libc::ENOSYS | libc::EPERM) => return None,
            Some(libc::EINTR | libc::EAGAIN) => {}
            _ => return Some(false),
        }
    }
    Some(false)
}

/// Check that words of a part can be written. In a file it takes space for them first.
#[derive(Clone, Debug, Default)]
pub struct Room {
    file: Option<(Arc<Space>, usize)>,
}

impl Room {
    /// Returns the room of a part that begins at an offset of the file.
    pub(crate) fn of(space: &Arc<Space>, at: u64) -> Room {
        Room {
            file: Some((Arc::clone(space), at as usize)),
        }
    }

    /// True if these bytes of the part can be written; takes space for them if necessary.
    #[inline]
    pub(crate) fn has(&self, at: usize, bytes: usize) -> bool {
        match &self.file {
            None => true,
            Some((space, from)) => space.ensure(from + at, bytes),
        }
    }

    /// Takes space like [`Room::has`], for bytes whose presence the caller tracks.
    pub(crate) fn reserve(&self, at: usize, bytes: usize) -> bool {
        match &self.file {
            None => true,
            Some((space, from)) => space.reserve(from + at, bytes),
        }
    }

    /// True if the page of a byte of the part has space, and so may have been written.
    #[inline]
    pub(crate) fn is_present(&self, at: usize) -> bool {
        match &self.file {
            None => true,
            Some((space, from)) => space.is_present(from + at),
        }
    }

    /// True if the file was truncated.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.file {
            None => false,
            Some((space, _)) => space.is_lost(),
        }
    }
}
