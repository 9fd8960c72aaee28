//! Heap of the stand-in, separate from the heap of the process.
//!
//! The stand-in's own data, and the gaps that it leaves, are no memory of the program under test.
//! Mappings of this heap are of `/dev/zero`, which identifies them in `/proc/self/smaps`.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Once;

use dlmalloc::{Allocator, Dlmalloc};

/// Memory of the heap: private mappings of `/dev/zero`. The kernel never merges them with an
/// adjacent anonymous mapping.
struct Zero;

// SAFETY: `alloc` returns a mapping of its own. The other calls are refused or concern such
// mappings only.
unsafe impl Allocator for Zero {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the path is a literal; the descriptor is closed below, and a new mapping touches
        // no other.
        let start = unsafe {
            let file = libc::open(c"/dev/zero".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            let named = (libc::MAP_PRIVATE, file);
            let (kind, file) = if file < 0 {
                (named.0 | libc::MAP_ANONYMOUS, -1)
            } else {
                named
            };
            let start = libc::mmap(ptr::null_mut(), size, protection, kind, file, 0);
            if file >= 0 {
                libc::close(file);
            }
            start
        };
        if start == libc::MAP_FAILED {
            return (ptr::null_mut(), 0, 0);
        }
        (start.cast(), size, 0)
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        ptr::null_mut()
    }

    fn free_part(&self, start: *mut u8, from: usize, to: usize) -> bool {
        // SAFETY: the end of a mapping of this heap, which it no longer uses.
        unsafe { libc::munmap(start.add(to).cast(), from - to) == 0 }
    }

    fn free(&self, start: *mut u8, size: usize) -> bool {
        // SAFETY: a mapping of this heap, which it no longer uses.
        unsafe { libc::munmap(start.cast(), size) == 0 }
    }

    fn can_release_part(&self, _: u32) -> bool {
        true
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        4096
    }
}

/// Heap behind a mutex of the C library. A thread holds the mutex while it forks, so that the child
/// can allocate.
struct Heap {
    lock: UnsafeCell<libc::pthread_mutex_t>,
    blocks: UnsafeCell<Dlmalloc<Zero>>,
}

// SAFETY: `blocks` is used under `lock` only, and the lock through the system's functions.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap {
    lock: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
    blocks: UnsafeCell::new(Dlmalloc::new_with_allocator(Zero)),
};

extern "C" fn lock() {
    // SAFETY: a mutex that is initialised, and never destroyed or moved.
    unsafe { libc::pthread_mutex_lock(HEAP.lock.get()) };
}

extern "C" fn unlock() {
    // SAFETY: as above; the calling thread holds it, and so does the one thread of a forked child.
    unsafe { libc::pthread_mutex_unlock(HEAP.lock.get()) };
}

fn with<R>(run: impl FnOnce(&mut Dlmalloc<Zero>) -> R) -> R {
    static AT_FORK: Once = Once::new();
    AT_FORK.call_once(|| {
        // Without handlers, a child forked while another thread allocates would wait for ever. A
        // failure is ignored: there is no alternative.
        // SAFETY: three functions that stay and do not unwind.
        let _ = unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
    });
    lock();
    // SAFETY: the lock is held.
    let result = run(unsafe { &mut *HEAP.blocks.get() });
    unlock();
    result
}

// SAFETY: dlmalloc's own contract, under the lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of this function.
        with(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of this function.
        with(|heap| unsafe { heap.calloc(layout.size(), layout.align()) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this function.
        with(|heap| unsafe { heap.free(block, layout.size(), layout.align()) });
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract of this function.
        with(|heap| unsafe { heap.realloc(block, layout.size(), layout.align(), bytes) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Returns the size of all mappings of `/dev/zero`, in KiB.
    fn mapped() -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_ours = false;
        let mut kib = 0;
        for line in maps.lines() {
            if let Some(size) = line.strip_prefix("Size:") {
                let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
                kib += if is_ours { size } else { 0 };
            } else if line
                .split_once('-')
                .is_some_and(|(start, _)| u64::from_str_radix(start, 16).is_ok())
            {
                is_ours = line.ends_with("/dev/zero");
            }
        }
        kib
    }

    /// Set in a process that runs only this test: an allocation of another test behind the block
    /// would keep its memory.
    const ALONE: &str = "STANDIN_TEST_ALONE";

    #[test]
    fn what_is_allocated_lies_in_mappings_of_its_own_until_it_is_freed() {
        if std::env::var_os(ALONE).is_none() {
            let name =
                "heap::tests::what_is_allocated_lies_in_mappings_of_its_own_until_it_is_freed";
            let mut again = Command::new(std::env::current_exe().unwrap());
            let again = again.args(["--exact", name]).env(ALONE, "yes");
            let output = again.output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && told.contains("1 passed"),
                "{told}"
            );
            return;
        }
        let before = mapped();
        let block = std::hint::black_box(vec![0u8; 1 << 30]);
        assert!(mapped() > before + (1 << 19));
        drop(block);
        assert!(mapped() < before + (1 << 19));
    }

    #[test]
    fn a_child_of_fork_can_allocate() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    drop(std::hint::black_box(vec![1u8; 4096]));
                }
            });
            for _ in 0..200 {
                // SAFETY: the child allocates, frees and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: a child that hangs is ended by the alarm.
                    unsafe { libc::alarm(20) };
                    drop(std::hint::black_box(vec![1u8; 100]));
                    // SAFETY: ends the child at once.
                    unsafe { libc::_exit(7) };
                }
                let mut status = 0;
                // SAFETY: `status` is a local of this test.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7);
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
