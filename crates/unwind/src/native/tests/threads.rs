//! Tests with many threads over one table that is much too small.

use std::arch::naked_asm;
use std::hint::black_box;

use super::compared;
use crate::Frames;
use crate::native::cache::Cache;
use crate::native::walk::walk_by;

static TINY: Cache<8> = Cache::new();

/// Walks like `walk`, by the small table.
#[unsafe(naked)]
extern "C" fn walk_tiny(frames: &mut Frames) -> usize {
    naked_asm!(
        ".cfi_startproc",
        "mov rsi, rsp",
        "mov rdx, rbp",
        "jmp {}",
        ".cfi_endproc",
        sym from,
    )
}

extern "C" fn from(frames: &mut Frames, return_slot: u64, bp: u64) -> usize {
    walk_by(&TINY, frames, return_slot, bp)
}

#[inline(never)]
fn odd(levels: usize) -> usize {
    let room = black_box([levels; 3]);
    if levels == 0 {
        return compared(walk_tiny).len();
    }
    even(levels - 1) + black_box(room)[0] - levels
}

#[inline(never)]
fn even(levels: usize) -> usize {
    let room = black_box([levels; 17]);
    if levels == 0 {
        return compared(walk_tiny).len();
    }
    odd(levels - 1) + black_box(room)[9] - levels
}

#[test]
fn collisions_are_noticed() {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                let shallow = odd(0);
                for round in 0..400 {
                    let levels = (round * 7 + thread) % 30;
                    assert_eq!(odd(levels), shallow + levels);
                    if round % 50 == thread {
                        TINY.invalidate();
                    }
                }
            });
        }
    });
}
