//! Random trees of calls: a walk that is found again, in whole or in part, has the frames of a walk
//! made anew. Planted mistakes in the proof of sameness must be noticed here.

use std::cell::Cell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::known::{compared, is_found, known};
use super::stacks::Guarded;
use super::{Function, Library, callback};
use crate::Met;
use crate::native::known::KnownWalks;
use crate::native::mistakes::{MADE, Mistake};

/// Functions whose frames have any size, found by the frame pointer; their room is not written to.
/// `jump` leaves its callee by `longjmp`.
const SOURCE: &str = "
    #include <alloca.h>
    #include <setjmp.h>
    typedef void Function(void *);
    static volatile char *seen;
    unsigned long call_a(Function *f, void *data, unsigned long size) {
        volatile char *room = alloca(size);
        seen = room;
        f(data);
        return room[0];
    }
    unsigned long call_b(Function *f, void *data, unsigned long size) {
        volatile char *room = alloca(size);
        seen = room;
        f(data);
        return room[1];
    }
    static __attribute__((noinline)) void leave(Function *f, void *data, jmp_buf to) {
        f(data);
        longjmp(to, 1);
    }
    unsigned long jump(Function *f, void *data, unsigned long size) {
        jmp_buf here;
        if (!setjmp(here)) leave(f, data, here);
        return size;
    }";

/// The functions of the source. They are looked up once: what a look-up leaves on the stack would
/// cover what earlier calls left there.
struct Functions {
    call_a: Function,
    call_b: Function,
    jump: Function,
    _library: Library,
}

impl Functions {
    fn new() -> Functions {
        let library = Library::new(SOURCE, &[]);
        Functions {
            call_a: library.function(c"call_a"),
            call_b: library.function(c"call_b"),
            jump: library.function(c"jump"),
            _library: library,
        }
    }
}

/// Calls a function of the source, which calls `f` back.
#[inline(never)]
fn through(function: Function, size: usize, mut f: &mut dyn FnMut()) {
    let (call, data) = callback(&mut f);
    function(call, data, size);
}

struct Storm<'a> {
    known: &'a KnownWalks,
    c: &'a Functions,
    met: Vec<Met>,
    /// True if a walk differed from one made anew. A panic would not get through C.
    differs: bool,
}

/// Number of ways in which a function of a path calls the next one.
const WAYS: u8 = 13;

/// Makes the calls of a path, and walks at its end.
#[inline(never)]
fn go(path: &[u8], storm: &mut Storm) {
    let [way, rest @ ..] = path else {
        let (met, are_same) = compared(storm.known);
        storm.differs |= !are_same;
        return storm.met.push(met);
    };
    let c = storm.c;
    match way {
        0 => small(rest, storm),
        1 => large(rest, storm),
        2 => go(rest, storm),
        // Frames of the same size, from places of their own.
        3 => same::<1>(rest, storm),
        4 => same::<2>(rest, storm),
        // All from one place: only the frames of the C functions tell them apart.
        5..=9 => {
            let (function, size) = match way {
                5 => (c.call_a, 16),
                6 => (c.call_b, 16),
                7 => (c.call_a, 4096),
                8 => (c.call_b, 4096),
                _ => (c.jump, 0),
            };
            through(function, size, &mut || go(rest, storm));
        }
        10 => {
            let thrown = catch_unwind(AssertUnwindSafe(|| {
                go(rest, storm);
                resume_unwind(Box::new(()));
            }));
            assert!(thrown.is_err());
        }
        11 => in_a_handler(&mut || go(rest, storm)),
        _ => in_a_coroutine(&mut || go(rest, storm)),
    }
    black_box(());
}

#[inline(never)]
fn small(path: &[u8], storm: &mut Storm) {
    let mut room = black_box([1_u64; 3]);
    go(path, storm);
    black_box(&mut room);
}

#[inline(never)]
fn large(path: &[u8], storm: &mut Storm) {
    let mut room = black_box([1_u64; 40]);
    go(path, storm);
    black_box(&mut room);
}

#[inline(never)]
fn same<const N: usize>(path: &[u8], storm: &mut Storm) {
    let mut room = black_box([N as u64; 6]);
    go(path, storm);
    black_box(&mut room);
}

thread_local!(static INNER: Cell<Option<*mut (dyn FnMut() + 'static)>> = const { Cell::new(None) });

/// Runs the rest of a path, inside a handler or a coroutine.
fn inner() {
    if let Some(call) = INNER.take() {
        // SAFETY: `with_inner` put it there, whose caller still has it.
        unsafe { (*call)() };
    }
}

fn with_inner(call: &mut dyn FnMut(), through: impl FnOnce()) {
    // SAFETY: only the lifetime differs, and `through` ends within it.
    let call: *mut (dyn FnMut() + 'static) = unsafe { std::mem::transmute(call) };
    INNER.set(Some(call));
    through();
    INNER.set(None);
}

fn in_a_handler(call: &mut dyn FnMut()) {
    extern "C" fn handler(_: i32) {
        inner();
    }
    with_inner(call, || {
        let signal = libc::SIGRTMIN() + 5;
        // SAFETY: the handler is fit for a signal raised here, also within itself.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_NODEFER;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            assert_eq!(libc::pthread_kill(libc::pthread_self(), signal), 0);
        }
    });
}

fn in_a_coroutine(call: &mut dyn FnMut()) {
    extern "C" fn body() {
        inner();
    }
    let room = Guarded::new(1 << 18);
    with_inner(call, || {
        let mut here = std::mem::MaybeUninit::<libc::ucontext_t>::uninit();
        let mut there = std::mem::MaybeUninit::<libc::ucontext_t>::uninit();
        // SAFETY: both contexts live until the coroutine has ended, on a stack of its own.
        unsafe {
            assert_eq!(libc::getcontext(there.as_mut_ptr()), 0);
            let its = &mut *there.as_mut_ptr();
            its.uc_stack.ss_sp = room.low().cast();
            its.uc_stack.ss_size = 1 << 18;
            its.uc_link = here.as_mut_ptr();
            libc::makecontext(there.as_mut_ptr(), body, 0);
            assert_eq!(libc::swapcontext(here.as_mut_ptr(), there.as_ptr()), 0);
        }
    });
}

/// Runs random storms; an error is a difference that was noticed.
fn storms(cases: u32, ways: u8) -> Result<(), String> {
    let c = Functions::new();
    let config = Config {
        cases,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    };
    let path = || prop::collection::vec(0..ways, 0..14);
    let paths = prop::collection::vec(path(), 1..40);
    let order = prop::collection::vec(any::<prop::sample::Index>(), 0..200);
    let run = |(paths, order): (Vec<Vec<u8>>, Vec<prop::sample::Index>)| {
        let known = known();
        let mut storm = Storm {
            known: &known,
            c: &c,
            met: Vec::new(),
            differs: false,
        };
        for at in order {
            let path: &Vec<u8> = at.get(&paths);
            go(path, &mut storm);
        }
        prop_assert!(!storm.differs);
        Ok(())
    };
    TestRunner::new(config)
        .run(&(paths, order), run)
        .map_err(|error| error.to_string())
}

#[test]
fn known_walks_are_those_made_anew() {
    storms(150, WAYS).expect("the same frames");
}

/// Stacks of which another function calls the same inner functions, with frames of the same sizes.
fn twins(c: &Functions, known: &KnownWalks) -> bool {
    let twins = [
        // Another caller further out.
        [&[3, 0, 1, 0, 2][..], &[4, 0, 1, 0, 2]],
        // The same inner frames, found from another frame pointer.
        [&[7, 6, 0], &[6, 8, 0]],
        [&[5, 8, 0, 0], &[8, 5, 0, 0]],
        // Frames that are missing only in the deeper one.
        [&[0; 250], &[0; 245]],
    ];
    let mut storm = Storm {
        known,
        c,
        met: Vec::new(),
        differs: false,
    };
    for [first, second] in twins {
        for path in [first, second, first, second, second, first] {
            go(path, &mut storm);
        }
    }
    let deep = [0; 240];
    for depth in (100..240).chain((90..240).rev()) {
        go(&deep[..depth], &mut storm);
    }
    !storm.differs
}

#[test]
fn planted_mistakes_are_noticed() {
    let c = Functions::new();
    assert!(twins(&c, &known()));
    let noticed = [
        Mistake::KnownWords,
        Mistake::OuterWords,
        Mistake::ReturnAddress,
        Mistake::FramePointer,
        Mistake::Count,
    ]
    .map(|mistake| {
        MADE.set(Some(mistake));
        let passes = twins(&c, &known()) && storms(100, 11).is_ok();
        MADE.set(None);
        (mistake, !passes)
    });
    assert!(noticed.iter().all(|(_, noticed)| *noticed), "{noticed:?}");
}

/// A stack of 85 frames and more, of which only the innermost ones differ: the others are compared,
/// not followed by rules.
#[test]
fn frames_of_the_last_walk_are_not_followed_again() {
    let c = Functions::new();
    let known = known();
    let mut storm = Storm {
        known: &known,
        c: &c,
        met: Vec::new(),
        differs: false,
    };
    let mut path = [0_u8; 46];
    let frames_of = |path: &[u8], storm: &mut Storm| {
        let before = known.followed();
        go(path, storm);
        known.followed() - before
    };
    // One place of the call for all of them: the outermost frame is the same, too.
    for (round, number) in
        black_box((0..3).flat_map(|round| (0..81).map(move |number| (round, number))))
    {
        let ways = [number / 27, number / 9 % 3, number / 3 % 3, number % 3];
        path[42..].copy_from_slice(&ways);
        let followed = frames_of(&path, &mut storm);
        let met = storm.met[storm.met.len() - 1];
        match (round, number) {
            (0, 0) => assert!(followed >= 85, "{followed}"),
            // Each is met for the first time.
            (0, _) => assert!((1..=16).contains(&followed), "{number}: {followed}"),
            // It comes after another one than before.
            (1, 0) => assert!(followed <= 16 && is_found(met), "{followed}"),
            _ => assert!(followed == 0 && is_found(met), "{number}: {followed}"),
        }
    }
}
