//! Content of a file that another process may be writing.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gpushim_descriptors::Identity;
use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};

use super::holes;
use super::lost::{self, Place};
use crate::guard::Guard;

/// Content as words, read atomically because a running process may change them meanwhile.
#[derive(Debug)]
pub struct Bytes {
    store: Store,
    length: u64,
}

#[derive(Debug)]
enum Store {
    Mapped(Mapped),
    /// Content read into private memory.
    Read(MmapRaw),
    Copied(Vec<AtomicU64>),
}

/// A mapped file. After it was truncated, reads give zeros, and [`lost::all`] names the file.
#[derive(Debug)]
struct Mapped {
    guard: Guard,
    map: MmapRaw,
    path: PathBuf,
    identity: Identity,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The rest of the last page, beyond the end of the file, reads as zeros without a fault.
        let end = std::fs::metadata(&self.path)
            .ok()
            .filter(|meta| self.identity.is(meta) && meta.len() < self.map.len() as u64)
            .map(|meta| Place::End(meta.len()));
        let fault = self.guard.lost_at().map(|at| Place::Byte(at as u64));
        if let Some(place) = end.or(fault) {
            lost::note(&self.path, place);
        }
        self.guard.release();
    }
}

impl Bytes {
    /// Maps the first `length` bytes of a file that was opened by this path.
    pub fn map(path: &Path, file: &File, meta: &Metadata, length: u64) -> io::Result<Bytes> {
        let size =
            usize::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if size < 8 {
            // Too short for one word, and the kernel maps no empty files.
            return Ok(Bytes {
                store: Store::Copied(Vec::new()),
                length: 0,
            });
        }
        let map = MmapOptions::new().len(size).map_raw_read_only(file)?;
        if !holes::are_readable(file, &map) {
            return Ok(Bytes {
                store: Store::Read(holes::read(file, size)?),
                length,
            });
        }
        Ok(Bytes {
            store: Store::Mapped(Mapped {
                guard: Guard::of_reader(map.as_ptr() as usize, size),
                map,
                path: path.to_path_buf(),
                identity: Identity::of(meta),
            }),
            length,
        })
    }

    /// Copies content; an incomplete word at the end is left out.
    pub fn copy(content: &[u8]) -> Bytes {
        let word = |chunk: &[u8]| AtomicU64::new(chunk.try_into().map_or(0, u64::from_le_bytes));
        let words: Vec<_> = content.chunks_exact(8).map(word).collect();
        Bytes {
            length: words.len() as u64 * 8,
            store: Store::Copied(words),
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Frees the memory that the file takes in this process. Later reads come from the page cache.
    pub fn forget(&self) {
        if let Store::Mapped(mapped) = &self.store {
            // SAFETY: a shared mapping of a file loses nothing, because later reads get its pages
            // from the file.
            let advised = unsafe { mapped.map.unchecked_advise(UncheckedAdvice::DontNeed) };
            // Memory that is not freed does no harm.
            let _ = advised;
        }
    }

    fn words(&self) -> &[AtomicU64] {
        match &self.store {
            Store::Copied(words) => words,
            Store::Mapped(Mapped { map, .. }) | Store::Read(map) => {
                // SAFETY: the mapping is page-aligned and holds this many whole words. It is only
                // read, which relaxed atomic loads of at most eight bytes allow (std::sync::atomic,
                // "Atomic accesses to read-only memory"), and nothing else is done with them.
                unsafe {
                    std::slice::from_raw_parts(map.as_ptr().cast::<AtomicU64>(), map.len() / 8)
                }
            }
        }
    }

    /// Returns `count` aligned words from an offset on; `None` if the file does not have all of
    /// them.
    pub fn atomics(&self, at: u64, count: usize) -> Option<&[AtomicU64]> {
        let first = usize::try_from(at).ok().filter(|at| at.is_multiple_of(8))? / 8;
        self.words().get(first..first.checked_add(count)?)
    }

    /// Returns the aligned words of a range, as many as the file has.
    pub fn available(&self, at: u64, length: u64) -> &[AtomicU64] {
        let length = length.min(self.length.saturating_sub(at));
        let count = usize::try_from(length / 8).unwrap_or(0);
        self.atomics(at, count).unwrap_or_default()
    }

    /// Returns the aligned word at an offset.
    pub fn u64(&self, at: u64) -> Option<u64> {
        Some(self.atomics(at, 1)?.first()?.load(Ordering::Relaxed))
    }

    /// Returns a copy of the bytes from an aligned offset on, fewer if the file ends before.
    pub fn to_vec(&self, at: u64, length: u64) -> Vec<u8> {
        let length = usize::try_from(length.min(self.length.saturating_sub(at))).unwrap_or(0);
        let whole = self
            .atomics(at, length.div_ceil(8))
            .or_else(|| self.atomics(at, length / 8));
        let words = whole.unwrap_or_default().iter();
        let mut bytes: Vec<u8> = words
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        bytes.truncate(length);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stay_inside() {
        let bytes = Bytes::copy(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(bytes.len(), 16);
        assert_eq!(bytes.u64(0), Some(1));
        assert_eq!(bytes.u64(4), None);
        assert_eq!(bytes.u64(16), None);
        assert_eq!(bytes.u64(u64::MAX - 7), None);
        assert_eq!(bytes.to_vec(8, 3), [2, 3, 4]);
        assert_eq!(bytes.to_vec(8, u64::MAX), [2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(bytes.to_vec(1 << 40, 8), [0u8; 0]);
        assert!(bytes.atomics(8, usize::MAX).is_none());
        let available = |at, length| bytes.available(at, length).len();
        assert_eq!([available(0, 15), available(8, u64::MAX)], [1, 1]);
        assert_eq!([available(4, 8), available(1 << 40, 8)], [0, 0]);
    }
}
