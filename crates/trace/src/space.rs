//! Space for a file that is mapped whole and grows as it is used.
//!
//! The file has its full length from the start and no blocks: a hole. To write into a hole of a full disk is a fault
//! that kills. So each page is made present, which takes its space on the disk, before it is first written: by
//! `MADV_POPULATE_WRITE`, which fails where a write would fault and needs no descriptor; before Linux 5.14 by
//! fallocate(2), through a descriptor that is held no longer than that.

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpushim_descriptors::Identity;

use super::guard::Guard;

/// Bytes that are told apart.
const PAGE: usize = 4096;

/// The space of a mapped file.
#[derive(Debug)]
pub(crate) struct Space {
    /// First address of the mapping.
    base: usize,
    bytes: usize,
    path: PathBuf,
    identity: Identity,
    /// A bit for each page of the file up to a length that was given, set when it has space.
    pages: Box<[AtomicU64]>,
    /// The disk gave no more: asked again by [`Space::retry`].
    is_full: AtomicBool,
    /// That was so at least once.
    was_full: AtomicBool,
    guard: Guard,
    /// The disk has no more.
    #[cfg(test)]
    is_refused: AtomicBool,
}

impl Space {
    /// For a file mapped at an address. Pages are tracked up to `tracked` bytes; beyond, the caller keeps track of
    /// them. `None`: there is not enough memory.
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

    /// Whether these bytes, which are not none, have space; takes it if not. Without a system call where they have it.
    #[inline]
    pub fn ensure(&self, at: usize, bytes: usize) -> bool {
        let (first, last) = (at / PAGE, (at + bytes.max(1) - 1) / PAGE);
        // Written out for the one page or two that nearly all callers have.
        let has =
            self.has(first) && (first == last || (first + 1..=last).all(|page| self.has(page)));
        has || self.take(first, last)
    }

    /// Whether the page of a byte has space.
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

    /// Takes space for these bytes, whether they have it or not. `false`: there is none.
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

    /// By fallocate(2), in the file that was created.
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

    /// Lets the disk be asked again, and looks whether the file was truncated.
    pub fn retry(&self) {
        self.is_full.store(false, Ordering::Relaxed);
        // On tmpfs to read a hole takes space, so that a full one looks as if the file had been truncated.
        if !self.was_full() {
            self.guard.probe();
        }
    }

    /// From now on the disk has no more.
    #[cfg(test)]
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }

    /// Whether the disk gave no more at least once.
    pub fn was_full(&self) -> bool {
        self.was_full.load(Ordering::Relaxed)
    }

    /// Whether the file was truncated: nothing is kept any more.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// The mapping is about to end.
    pub fn close(&self) {
        self.guard.release();
    }
}

/// Makes the pages at an address present and writable. `None`: this kernel cannot.
fn populate(at: usize, length: usize) -> Option<bool> {
    for _ in 0..8 {
        // SAFETY: the range is within the mapping, and to make its pages present changes nothing in them.
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

/// Whether the words of a part can be written: those of a part in a file take space first.
#[derive(Clone, Debug, Default)]
pub struct Room {
    file: Option<(Arc<Space>, usize)>,
}

impl Room {
    /// That of a part that begins at an offset of the file.
    pub(crate) fn of(space: &Arc<Space>, at: u64) -> Room {
        Room {
            file: Some((Arc::clone(space), at as usize)),
        }
    }

    /// Whether these bytes of the part can be written; takes space for them if need be.
    #[inline]
    pub(crate) fn has(&self, at: usize, bytes: usize) -> bool {
        match &self.file {
            None => true,
            Some((space, from)) => space.ensure(from + at, bytes),
        }
    }

    /// As [`Room::has`], for bytes whose presence the caller keeps track of.
    pub(crate) fn reserve(&self, at: usize, bytes: usize) -> bool {
        match &self.file {
            None => true,
            Some((space, from)) => space.reserve(from + at, bytes),
        }
    }

    /// Whether anything was ever written near a byte of the part.
    #[inline]
    pub(crate) fn is_present(&self, at: usize) -> bool {
        match &self.file {
            None => true,
            Some((space, from)) => space.is_present(from + at),
        }
    }

    /// Whether the file was truncated.
    pub(crate) fn is_lost(&self) -> bool {
        match &self.file {
            None => false,
            Some((space, _)) => space.is_lost(),
        }
    }
}
