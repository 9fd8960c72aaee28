//! Many threads at random. `GPUSHIM_TEST_LONG=1` makes it the long form: 8 threads, a million
//! operations each (`scripts/test long`, best in release mode).

use std::time::Duration;

use gpushim_trace::{Class, Kind, flags};

use crate::support::{Run, program};

/// Operations of each thread, and room in the trace for every event.
fn size() -> (&'static str, &'static str) {
    if std::env::var_os("GPUSHIM_TEST_LONG").is_some() {
        ("1000000", "512M")
    } else {
        ("20000", "32M")
    }
}

fn storm(policy: &str, reuse: &str, seed: &str) {
    let (operations, room) = size();
    let run = Run::new(program("stress"))
        .arg("8")
        .arg(operations)
        .arg(seed);
    let shim = run
        .env("GPUSHIM_POLICY", policy)
        .env("GPUSHIM_REUSE", reuse)
        .env("GPUSHIM_DECAY", "100ms")
        .env("GPUSHIM_TRACE_SIZE", room)
        .limit(Duration::from_secs(1800))
        .shim();
    assert_eq!(shim.code, 0, "{policy} {reuse}: {}", shim.stdout);
    assert!(
        shim.stdout.contains("free memory as before: 1\n"),
        "{policy} {reuse}: {}",
        shim.stdout
    );
    let trace = shim.trace();
    let (allocated, freed) = (
        trace.class(Kind::Alloc, Class::Device),
        trace.count(Kind::Free, Class::Device),
    );
    let from = |flag| {
        allocated
            .iter()
            .filter(|event| event.flags & flag != 0)
            .count()
    };
    let [hit, ordered, waited, grown] =
        [flags::HIT, flags::ORDERED, flags::WAITED, flags::GROWN].map(from);
    println!(
        "{policy} {reuse}: {} allocations ({hit} hits, {ordered} ordered, {waited} waited, {grown} grown) in {:?}",
        allocated.len(),
        shim.wall
    );
    assert_eq!(
        trace.lost, 0,
        "{policy} {reuse}: the trace is too small for the test"
    );
    assert!(
        allocated.len() > 10_000,
        "{policy} {reuse}: only {} allocations",
        allocated.len()
    );
    assert_eq!(allocated.len(), freed, "{policy} {reuse}: a leak");
    assert_eq!(
        trace.reserved(),
        0,
        "{policy} {reuse}: bytes are still reserved after everything decayed"
    );
    // Blocks were wanted while there was work on them, or nothing could have raced.
    let unfinished = match reuse {
        "order" => ordered,
        "wait" => waited,
        _ => hit,
    };
    assert!(
        unfinished > 100,
        "{policy} {reuse}: only {unfinished} were reused so"
    );
}

#[test]
fn threads_at_random_under_blocks() {
    storm("blocks", "order", "1");
}

#[test]
fn threads_at_random_under_vmm() {
    storm("vmm", "order", "6");
    storm("vmm", "wait", "7");
    storm("vmm", "strict", "8");
}

#[test]
fn threads_at_random_with_waits() {
    storm("blocks", "wait", "4");
}

#[test]
fn threads_at_random_when_strict() {
    storm("blocks", "strict", "5");
}

/// A real-time thread does not spin for a lock of a normal thread on its processor.
///
/// If it did, it would keep the processor until the kernel intervenes after about a second. A pair
/// took 1,004 ms then, and takes some 5 ms natively and here.
#[test]
fn a_real_time_thread_lets_the_thread_run_that_it_waits_for() {
    for policy in ["auto", "blocks", "vmm"] {
        let run = Run::new(program("realtime"))
            .arg("1500")
            .env("GPUSHIM_POLICY", policy);
        let native = run.native();
        if native.code == 3 {
            println!("not tested: this user may not have threads of real-time priority");
            return;
        }
        let shim = run.shim();
        assert_eq!(shim.code, 0, "{policy}: {}", shim.stdout);
        let (natively, worst) = (native.note("worst"), shim.note("worst"));
        assert!(
            worst < natively + 500_000,
            "{policy}: {worst} us, natively {natively}"
        );
    }
}
