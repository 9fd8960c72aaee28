//! Tests of functions that compilers split.

use super::{Library, walked};
use crate::parts_of;

/// Source with code that seldom runs. If gcc splits it, that code is in a part of its own,
/// `call.cold`.
const SOURCE: &str = r#"
typedef void (*visit)(void *);
__attribute__((cold, noinline)) void rare(unsigned long n) { __asm__ volatile("" : : "r"(n)); }
__attribute__((noinline)) void often(unsigned long n) { __asm__ volatile("" : : "r"(n)); }
#define BRANCH(k) often(n * k); if (n == k) { rare(k); f(p); rare(n); }
unsigned long call(visit f, void *p, unsigned long n) {
    BRANCH(1) BRANCH(2) BRANCH(3) BRANCH(4) BRANCH(5) BRANCH(6) BRANCH(7) BRANCH(8) BRANCH(9) BRANCH(10) BRANCH(11)
    if (n == 100) f(p);
    often(n);
    return n;
}
"#;

#[test]
fn a_frame_in_the_part_that_seldom_runs_is_one_of_the_function() {
    let library = Library::new(SOURCE, &["-O2", "-freorder-blocks-and-partition"]);
    let parts = parts_of(library.symbol(c"call") as u64);
    let part_of = |n: usize| {
        let mut frames = Vec::new();
        library.call(c"call", n, || frames = walked());
        let part = |frame: &u64| parts.iter().position(|part| part.contains(&(frame - 1)));
        frames.iter().find_map(part)
    };
    assert_eq!(part_of(100), Some(0), "{parts:x?}");
    assert_eq!((1..12).map(part_of).collect::<Vec<_>>(), [Some(1); 11]);
    let others = parts.get(2..).unwrap_or_default();
    assert!(others.iter().all(|part| part.is_empty()), "{parts:x?}");
    assert!(
        !parts
            .iter()
            .any(|part| part.contains(&(library.symbol(c"often") as u64)))
    );
}

#[test]
fn what_is_no_function_has_no_parts() {
    let here = 0_u8;
    for address in [0, u64::MAX, std::ptr::from_ref(&here) as u64] {
        assert!(parts_of(address).iter().all(|part| part.is_empty()));
    }
}
