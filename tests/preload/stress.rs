//! Many threads at random. `GPUSHIM_TEST_LONG=1` makes it the long form: 8 threads, a million operations each
//! (`scripts/test --long`, best in release mode).

use std::time::Duration;

use gpushim_core::trace::{Class, Kind};

use crate::support::{Run, program};

/// Threads run this many operations each.
fn operations() -> &'static str {
    if std::env::var_os("GPUSHIM_TEST_LONG").is_some() { "1000000" } else { "20000" }
}

fn storm(policy: &str, reuse: &str, seed: &str) {
    let run = Run::new(program("stress")).arg("8").arg(operations()).arg(seed);
    let shim = run
        .env("GPUSHIM_POLICY", policy)
        .env("GPUSHIM_REUSE", reuse)
        .env("GPUSHIM_DECAY", "100ms")
        // Room for every event of the short form.
        .env("GPUSHIM_TRACE_SIZE", "32M")
        .limit(Duration::from_secs(1800))
        .shim();
    assert_eq!(shim.code, 0, "{policy} {reuse}: {}", shim.stdout);
    assert!(shim.stdout.contains("free memory as before: 1\n"), "{policy} {reuse}: {}", shim.stdout);
    let trace = shim.trace();
    println!("{policy} {reuse}: {} events, {} lost, {:?}", trace.events.len(), trace.lost, shim.wall);
    if trace.lost == 0 {
        let (allocated, freed) = (trace.count(Kind::Alloc, Class::Device), trace.count(Kind::Free, Class::Device));
        assert!(allocated > 10_000, "{policy} {reuse}: only {allocated} allocations");
        assert_eq!(allocated, freed, "{policy} {reuse}: a leak");
        assert_eq!(trace.reserved(), 0, "{policy} {reuse}: bytes are still reserved after everything decayed");
    }
}

#[test]
fn threads_at_random_under_blocks() {
    storm("blocks", "order", "1");
}

#[test]
fn threads_at_random_under_segments() {
    storm("segments", "order", "2");
}

#[test]
fn threads_at_random_under_bins() {
    storm("bins", "order", "3");
}

#[test]
fn threads_at_random_with_waits() {
    storm("blocks", "wait", "4");
}

#[test]
fn threads_at_random_when_strict() {
    storm("blocks", "strict", "5");
}
