//! Cost of a walk: `cargo bench --features unwind --bench unwind`.
//!
//! Each time is one walk, each throughput is frames; no code that is walked has frame pointers.

use std::ffi::{c_int, c_void};

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use gpushim_unwind::{self, Frames, KnownWalks};

/// Something to do at the innermost frame.
type Look<'a> = &'a mut dyn FnMut();

fn main() {
    divan::main();
}

/// Makes `levels` nested calls.
#[inline(never)]
fn down(levels: usize, look: Look) -> usize {
    if levels == 0 {
        look();
        return 0;
    }
    black_box(down(black_box(levels - 1), look)) + 1
}

/// About 40 frames of Rust.
fn rust(look: Look) {
    down(26, look);
}

/// Fills the frames' buffer.
fn deep(look: Look) {
    down(240, look);
}

/// About 40 frames, half of them qsort calls within qsort.
fn qsort(look: Look) {
    nested(8, look);
}

fn nested(levels: usize, look: Look) {
    struct Call<'a> {
        levels: usize,
        look: Option<Look<'a>>,
    }
    thread_local!(static CALL: std::cell::Cell<*mut c_void> = const { std::cell::Cell::new(std::ptr::null_mut()) });
    extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        // SAFETY: the frame below that sorts has put its call there.
        let call = unsafe { CALL.get().cast::<Call>().as_mut() };
        if let Some((levels, look)) = call.and_then(|c| Some((c.levels, c.look.take()?))) {
            nested(levels - 1, look);
        }
        0
    }
    if levels == 0 {
        return look();
    }
    let mut call = Call {
        levels,
        look: Some(look),
    };
    CALL.set((&raw mut call).cast());
    let mut numbers = [0u64; 2];
    // SAFETY: two numbers of eight bytes.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 8, Some(compare)) };
}

/// Times `walk` at the innermost frame.
fn time(bencher: Bencher, calls: fn(Look), mut walk: impl FnMut()) {
    let mut bencher = Some(bencher);
    calls(&mut || {
        if let Some(bencher) = bencher.take() {
            let frames = gpushim_unwind::walk(&mut Frames::new());
            bencher
                .counter(ItemsCount::new(frames))
                .bench_local(&mut walk);
        }
    });
}

#[divan::bench(args = ["rust", "qsort", "deep"])]
fn ours(bencher: Bencher, which: &str) {
    let mut frames = Frames::new();
    time(bencher, named(which), || {
        black_box(gpushim_unwind::walk(&mut frames));
    });
}

/// Repeats one walk, which is known after the first time.
#[divan::bench(args = ["rust", "qsort", "deep"])]
fn known(bencher: Bencher, which: &str) {
    // SAFETY: a value of zeros is one, and the layout is the box's.
    let known: Box<KnownWalks> = unsafe {
        Box::from_raw(std::alloc::alloc_zeroed(std::alloc::Layout::new::<KnownWalks>()).cast())
    };
    let mut frames = Frames::new();
    time(bencher, named(which), || {
        black_box(gpushim_unwind::walk_known(&mut frames, &known));
    });
}

/// Each walk after code changed: all rules are compiled anew.
#[divan::bench(args = ["rust", "qsort"])]
fn ours_cold(bencher: Bencher, which: &str) {
    let mut frames = Frames::new();
    time(bencher, named(which), || {
        gpushim_unwind::code_changed();
        black_box(gpushim_unwind::walk(&mut frames));
    });
}

#[divan::bench(args = ["rust", "qsort", "deep"])]
fn backtrace_crate(bencher: Bencher, which: &str) {
    time(bencher, named(which), || {
        let mut count = 0;
        // SAFETY: one thread.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                black_box(frame.ip());
                count += 1;
                count < gpushim_unwind::MAX_FRAMES
            })
        };
        black_box(count);
    });
}

fn named(which: &str) -> fn(Look) {
    match which {
        "rust" => rust,
        "qsort" => qsort,
        _ => deep,
    }
}
