//! The stand-in's own heap, counted: what it keeps for itself is not what a program under test keeps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes, with what the system's allocator adds to each block.
static BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

/// Bytes of a block in the heap: glibc keeps a word before it, and rounds to two.
fn cost(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(cost(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's word.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(cost(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's word.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(cost(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's word.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        BYTES.fetch_add(cost(bytes), Ordering::Relaxed);
        BYTES.fetch_sub(cost(layout.size()), Ordering::Relaxed);
        // SAFETY: the caller's word.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

/// Bytes of the heap that are the stand-in's.
pub fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_allocated_counts_until_it_is_freed() {
        // Other tests allocate meanwhile, but not as much.
        let before = super::bytes();
        let block = std::hint::black_box(vec![0u8; 1 << 30]);
        assert!(super::bytes() > before + (1 << 29));
        drop(block);
        assert!(super::bytes() < before + (1 << 29));
    }
}
