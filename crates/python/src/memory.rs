//! Reads of the memory of this process.

use std::cell::RefCell;
use std::ffi::c_void;
use std::os::unix::fs::FileExt;

/// Source of memory for a walk.
pub trait Memory {
    /// Copies bytes from an address; false if they are not mapped.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;

    /// Returns the word of eight bytes at an address that is a multiple of 8.
    #[inline]
    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (is_plausible(at, 8) && self.read(at, &mut bytes)).then(|| u64::from_ne_bytes(bytes))
    }

    /// Returns the number of four bytes at an address that is a multiple of 4.
    #[inline]
    fn number(&self, at: u64) -> Option<i32> {
        let mut bytes = [0; 4];
        (is_plausible(at, 4) && self.read(at, &mut bytes)).then(|| i32::from_ne_bytes(bytes))
    }

    /// Returns the byte at an address.
    #[inline]
    fn byte(&self, at: u64) -> Option<u8> {
        let mut bytes = [0];
        (is_plausible(at, 1) && self.read(at, &mut bytes)).then_some(bytes[0])
    }
}

/// Lowest address that may be mapped.
const LOWEST: u64 = 0x1_0000;
/// First address beyond a program's, with four levels of page tables.
const HIGHEST: u64 = 1 << 47;

#[inline]
fn is_plausible(at: u64, align: u64) -> bool {
    (LOWEST..HIGHEST).contains(&at) && at.is_multiple_of(align)
}

/// Memory that is read directly: fast, and a fault where nothing is mapped.
#[derive(Clone, Copy, Debug)]
pub struct Own(());

impl Own {
    /// Returns direct access without checks.
    ///
    /// # Safety
    /// Only mapped memory may be read by it: objects of an interpreter whose layout was checked,
    /// and which stay while they are read.
    pub unsafe fn new() -> Own {
        Own(())
    }
}

impl Memory for Own {
    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        for (place, at) in into.iter_mut().zip(at..) {
            // SAFETY: who made this promised that it is mapped; volatile, since it belongs to
            // others.
            *place = unsafe { (at as *const u8).read_volatile() };
        }
        true
    }

    #[inline(always)]
    fn word(&self, at: u64) -> Option<u64> {
        // SAFETY: who made this promised that it is mapped, and it is aligned; volatile, since it
        // belongs to others.
        is_plausible(at, 8).then(|| unsafe { (at as *const u64).read_volatile() })
    }

    #[inline(always)]
    fn number(&self, at: u64) -> Option<i32> {
        // SAFETY: as above.
        is_plausible(at, 4).then(|| unsafe { (at as *const i32).read_volatile() })
    }
}

/// Memory that is read by the kernel: it never faults, and takes a system call each time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel;

impl Memory for Kernel {
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let to = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let from = libc::iovec {
            iov_base: at as *mut c_void,
            iov_len: into.len(),
        };
        // SAFETY: the kernel checks what it reads, and writes no more than `into` has room for.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) };
        match usize::try_from(copied) {
            Ok(copied) => copied == into.len(),
            Err(_) => by_file(at, into),
        }
    }
}

/// Memory that another thread may unmap at any time, after it has announced this. The kernel copies
/// it block by block. A block counts only if `is_still_there` returns true after the copy.
pub struct Guarded<V> {
    is_still_there: V,
    blocks: RefCell<Blocks>,
}

/// Bytes of a block: it lies within a page, and holds about twenty frames.
const BLOCK: usize = 2048;
/// Number of blocks that are kept: a thread state's fields and the frames are read in turns.
const KEPT: usize = 2;

struct Blocks {
    /// Address of each block; 0 for none.
    begins: [u64; KEPT],
    bytes: [[u8; BLOCK]; KEPT],
    /// Index of the block that is overwritten next.
    next: usize,
}

impl<V: Fn() -> bool> Guarded<V> {
    /// Returns memory that can be read as long as `is_still_there` returns true.
    pub fn new(is_still_there: V) -> Guarded<V> {
        Guarded {
            is_still_there,
            blocks: RefCell::new(Blocks {
                begins: [0; KEPT],
                bytes: [[0; BLOCK]; KEPT],
                next: 0,
            }),
        }
    }
}

impl<V: Fn() -> bool> Memory for Guarded<V> {
    /// Reads within one block: an aligned word is, because a block is aligned to its own size.
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        let begin = at & !(BLOCK as u64 - 1);
        let mut blocks = self.blocks.borrow_mut();
        let kept = blocks.begins.iter().position(|kept| *kept == begin);
        let place = match kept {
            Some(place) => place,
            None => {
                let place = blocks.next;
                blocks.next = (place + 1) % KEPT;
                blocks.begins[place] = 0;
                if !Kernel.read(begin, &mut blocks.bytes[place]) || !(self.is_still_there)() {
                    return false;
                }
                blocks.begins[place] = begin;
                place
            }
        };
        let from = (at - begin) as usize;
        let found = blocks.bytes[place].get(from..from + into.len());
        found.is_some_and(|bytes| {
            into.copy_from_slice(bytes);
            true
        })
    }
}

/// Reads by the file of the process's memory: some containers forbid the system call above.
fn by_file(at: u64, into: &mut [u8]) -> bool {
    let failed = std::io::Error::last_os_error().raw_os_error();
    if !matches!(failed, Some(libc::EPERM | libc::ENOSYS)) {
        return false;
    }
    let file = std::fs::File::open("/proc/self/mem");
    file.is_ok_and(|file| file.read_exact_at(into, at).is_ok())
}

#[cfg(test)]
pub mod made {

    use super::Memory;

    /// Regions by their first address.
    #[derive(Default)]
    pub struct Made(pub Vec<(u64, Vec<u8>)>);

    impl Made {
        /// Adds a region with these bytes; returns its address.
        pub fn put(&mut self, bytes: &[u8]) -> u64 {
            let at = self.0.last().map_or(0x10_0000, |(at, bytes)| {
                (at + bytes.len() as u64).next_multiple_of(16) + 64
            });
            self.0.push((at, bytes.to_vec()));
            at
        }
    }

    impl Made {
        /// Overwrites bytes of a region.
        pub fn set(&mut self, at: u64, value: &[u8]) {
            let holds = |(begin, bytes): &&mut (u64, Vec<u8>)| {
                (*begin..*begin + bytes.len() as u64).contains(&at)
            };
            let (begin, bytes) = self.0.iter_mut().find(holds).expect("a region");
            let at = (at - *begin) as usize;
            bytes[at..at + value.len()].copy_from_slice(value);
        }
    }

    impl Memory for Made {
        fn read(&self, at: u64, into: &mut [u8]) -> bool {
            let found = self.0.iter().find_map(|(begin, bytes)| {
                let from = usize::try_from(at.checked_sub(*begin)?).ok()?;
                bytes.get(from..from.checked_add(into.len())?)
            });
            found.is_some_and(|bytes| {
                into.copy_from_slice(bytes);
                true
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn guarded_memory_counts_only_while_it_is_there() {
        let here: Vec<u64> = (0..1000).collect();
        let at = here.as_ptr() as u64;
        let (is_there, asked) = (Cell::new(true), Cell::new(0));
        let memory = Guarded::new(|| {
            asked.set(asked.get() + 1);
            is_there.get()
        });
        for round in 0..2 {
            for (place, word) in (0..).zip(&here) {
                assert_eq!(memory.word(at + place * 8), Some(*word), "{round}");
            }
        }
        // 8,000 bytes are in four blocks or five; more than are kept.
        assert!((8..=10).contains(&asked.get()), "{}", asked.get());
        assert_eq!(memory.byte(at + 7999), Some(0));
        is_there.set(false);
        assert_eq!(memory.word(at), None);
        assert_eq!(memory.word(at), None);
        is_there.set(true);
        assert_eq!(memory.word(at + 8), Some(1));
        // What is not mapped is not there, whatever is said.
        assert_eq!(memory.word(0x10_0000), None);
    }

    #[test]
    fn the_kernel_reads_what_is_mapped_and_says_so_of_the_rest() {
        let here = [0x1122_3344_5566_7788_u64];
        let at = here.as_ptr() as u64;
        assert_eq!(Kernel.word(at), Some(here[0]));
        assert_eq!(Kernel.byte(at + 1), Some(0x77));
        // SAFETY: `here` is mapped.
        let own = unsafe { Own::new() };
        assert_eq!(
            (own.word(at), own.number(at)),
            (Kernel.word(at), Kernel.number(at))
        );
        for nowhere in [0, 8, 0x10_0000, (1 << 47) - 8, 1 << 47, u64::MAX - 7] {
            assert_eq!(Kernel.word(nowhere), None, "{nowhere:#x}");
        }
        for (not, misaligned) in [(0, at + 1), (8, at + 4), (1 << 47, 1 << 63)] {
            assert_eq!((own.word(not), own.word(misaligned)), (None, None));
        }
    }
}
