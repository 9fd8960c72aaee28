//! Tests with chains of calls as compilers make them.

use std::ffi::{c_int, c_void};
use std::hint::black_box;

use super::{Library, framed, ours, walked};
use crate::native::compile;
use crate::native::rule::{Cfa, Step};
use crate::native::step::Arrival;
use crate::{Frames, MAX_FRAMES, walk};

#[inline(never)]
fn down(levels: usize, f: &mut dyn FnMut()) -> usize {
    if levels == 0 {
        f();
        return 0;
    }
    black_box(down(black_box(levels - 1), f)) + 1
}

/// Returns the address that occurs most often, and the number of times that it does.
fn most_frequent(frames: &[u64]) -> (u64, usize) {
    let count = |address| frames.iter().filter(|&&f| f == address).count();
    let frame = frames.iter().copied().max_by_key(|&f| count(f)).unwrap();
    (frame, count(frame))
}

#[test]
fn functions_and_closures() {
    let mut seen = Vec::new();
    framed(|| framed(|| down(20, &mut || seen = framed(walked))));
    assert_eq!(most_frequent(&seen).1, 20);
    // The test harness and the start of its thread have as many.
    assert!(seen.len() > 30);
}

#[test]
fn the_first_frame_is_the_caller() {
    #[inline(never)]
    extern "C" fn known(frames: &mut Frames) -> u64 {
        walk(frames);
        black_box(known as *const () as u64)
    }
    let mut frames = Frames::new();
    let start = known(&mut frames);
    let first = frames.as_slice()[0];
    assert!(start < first && first < start + 64, "{start:x} {first:x}");
}

#[test]
fn a_deep_stack_is_cut() {
    let mut frames = Frames::new();
    let mut look = |levels| {
        down(levels, &mut || {
            walk(&mut frames);
        });
        (frames.as_slice().len(), frames.is_cut())
    };
    assert_eq!(look(1000), (MAX_FRAMES, true));
    let (shallow, cut) = look(10);
    assert!(!cut);
    // Exactly as many frames as there is room for, and one more.
    assert_eq!(look(10 + MAX_FRAMES - shallow), (MAX_FRAMES, false));
    assert_eq!(look(11 + MAX_FRAMES - shallow), (MAX_FRAMES, true));
}

#[test]
fn through_the_c_library() {
    thread_local!(static SEEN: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) });
    extern "C" fn compare(_: *const c_void, _: *const c_void) -> c_int {
        SEEN.set(walked());
        0
    }
    let mut numbers = [0u64; 40];
    let before = framed(ours).len();
    // SAFETY: an array of 40 numbers of 8 bytes.
    framed(|| unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 40, 8, Some(compare)) });
    // The comparison, the closure's frame and qsort's own recursion.
    assert!(SEEN.take().len() > before + 3);
}

#[test]
fn from_the_start_of_a_thread() {
    extern "C" fn start(_: *mut c_void) -> *mut c_void {
        Box::into_raw(Box::new(walked())).cast()
    }
    let (mut thread, mut result) = (0, std::ptr::null_mut());
    // SAFETY: a thread that is joined, and gives a box of its frames.
    let frames = unsafe {
        assert_eq!(
            libc::pthread_create(&mut thread, std::ptr::null(), start, std::ptr::null_mut()),
            0
        );
        libc::pthread_join(thread, &mut result);
        Box::from_raw(result.cast::<Vec<u64>>())
    };
    // This function, start_thread and clone.
    assert_eq!(frames.len(), 3);
    assert!(std::thread::spawn(walked).join().unwrap().len() > 3);
}

const SOURCE: &str = r#"
#include <alloca.h>
#include <string.h>
typedef void (*visit)(void *);
#define FUNCTION __attribute__((noipa)) unsigned long
FUNCTION plain(visit f, void *p, unsigned long n) {
    if (n) {
        unsigned long rest = plain(f, p, n - 1);
        __asm__ volatile("" : "+r"(rest)); /* no loop in place of the calls */
        return rest + n;
    }
    f(p);
    return 1;
}
FUNCTION call(visit f, void *p, unsigned long n) { f(p); return n; }
FUNCTION with_alloca(visit f, void *p, unsigned long n) {
    volatile char *room = alloca(n + 100);
    room[n] = 1;
    plain(f, p, 3);
    return room[n];
}
FUNCTION realigned(visit f, void *p, unsigned long n) {
    volatile char room[64] __attribute__((aligned(64)));
    volatile char *more = alloca(n + 100);
    room[n & 63] = more[n] = 2;
    with_alloca(f, p, n);
    return room[n & 63] + more[n];
}
FUNCTION registers(visit f, void *p, unsigned long n) {
    unsigned long a = n * 3, b = n ^ 5, c = n << 2, d = n + 7, e = n * n, g = n % 9;
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(g));
    realigned(f, p, n);
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(g));
    return a + b + c + d + e + g;
}
/* A frame pointer but no unwind information. */
__asm__(".globl untold; .type untold, @function\n"
        "untold: pushq %rbp; movq %rsp, %rbp; movq %rdi, %rax; movq %rsi, %rdi; call *%rax\n"
        "popq %rbp; ret\n");
"#;

#[test]
fn through_code_without_frame_pointers() {
    let library = Library::new(SOURCE, &[]);
    let mut seen = Vec::new();
    library.call(c"registers", 5, || seen = walked());
    // Four frames of plain, then with_alloca, realigned, registers.
    let frames = library.frames(&seen);
    assert_eq!(frames.len(), 7);
    assert_eq!(most_frequent(&frames), (frames[1], 3));
    let step = |frame: usize| compile::rule(frames[frame], Arrival::Return).step();
    for frame in 0..4 {
        assert!(matches!(step(frame), Step::Caller(Cfa::Sp(_), _)));
    }
    assert!(matches!(step(4), Step::Caller(Cfa::Bp(_), _)));
    assert!(matches!(step(5), Step::Caller(Cfa::AtBp(_), _)));
    assert!(matches!(step(6), Step::Caller(Cfa::Sp(_), _)));
}

#[test]
fn through_code_without_unwind_tables() {
    let library = Library::new(SOURCE, &[]);
    let (mut told, mut untold) = (Vec::new(), Vec::new());
    for (name, seen) in [(c"plain", &mut told), (c"untold", &mut untold)] {
        library.call(name, 0, || *seen = ours());
    }
    assert_eq!(told.len(), untold.len());
    let differ: Vec<_> = (0..told.len()).filter(|&i| told[i] != untold[i]).collect();
    // The callback and this function's frame are the same, the library's function is not.
    assert_eq!(differ.len(), 1, "{told:x?} {untold:x?}");
}

#[test]
fn callbacks_can_be_nested() {
    let library = Library::new(SOURCE, &[]);
    let mut seen = Vec::new();
    library.call(c"registers", 1, || {
        library.call(c"realigned", 9, || seen = walked());
    });
    // Seven frames of the outer call, and six of the inner.
    assert_eq!(library.frames(&seen).len(), 13);
}
