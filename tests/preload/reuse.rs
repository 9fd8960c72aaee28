//! A freed block is handed out again only after the work on it, in every mode and policy.
//!
//! The stand-in driver's race detector checks this.

use gpushim_trace::{Class, Kind, flags};

use crate::support::{Outcome, Run, library, program, sum};

const POLICIES: [&str; 2] = ["blocks", "vmm"];
const MODES: [&str; 3] = ["order", "wait", "strict"];

fn churn(policy: &str, mode: &str) -> Run {
    Run::new(program("churn"))
        .arg("600")
        .env("GPUSHIM_POLICY", policy)
        .env("GPUSHIM_REUSE", mode)
}

/// Number of allocations with one of these flags.
fn sourced(outcome: &Outcome, which: u16) -> usize {
    outcome
        .trace()
        .class(Kind::Alloc, Class::Device)
        .iter()
        .filter(|event| event.flags & which != 0)
        .count()
}

#[test]
fn the_race_detector_notices_an_allocator_that_does_not_wait() {
    // The same program on the same driver, with a cache that hands blocks out at once.
    for synchronises in ["0", "1"] {
        let run = Run::new(program("churn"))
            .arg("600")
            .arg(synchronises)
            .env("DOOR", "default");
        assert_eq!(run.native().stdout, "done\n");
        let racing = run
            .preload_before(library("lib_unsafe", &[]))
            .may("")
            .native();
        let races = racing
            .findings
            .iter()
            .filter(|finding| finding.starts_with("race:"))
            .count();
        assert!(races > 10, "only {races} races in {:?}", racing.findings);
    }
}

/// In each mode, and whether or not the program synchronises by itself.
fn no_race(policy: &str) {
    for mode in MODES {
        for synchronises in ["0", "1"] {
            let (_, shim) = churn(policy, mode).arg(synchronises).both();
            let trace = shim.trace();
            let count = |kind| trace.count(kind, Class::Device);
            let counts = (count(Kind::Alloc), count(Kind::Free), trace.lost);
            assert_eq!(counts, (600, 600, 0), "{policy} {mode}");
        }
    }
}

#[test]
fn no_race_under_blocks() {
    no_race("blocks");
}

#[test]
fn no_race_without_a_pool() {
    no_race("off");
}

#[test]
fn blocks_are_in_fact_reused_before_their_work_is_done() {
    // Or there would be nothing in the tests above that could race.
    for policy in POLICIES {
        let ordered = churn(policy, "order").shim();
        assert!(
            sourced(&ordered, flags::ORDERED) > 20,
            "{policy}: {} ordered",
            sourced(&ordered, flags::ORDERED)
        );
        assert!(sourced(&ordered, flags::FORWARDED) == 0, "{policy}");
        let waited = churn(policy, "wait").shim();
        assert!(
            sourced(&waited, flags::WAITED) > 20,
            "{policy}: {} waited",
            sourced(&waited, flags::WAITED)
        );
        assert_eq!(sourced(&waited, flags::ORDERED), 0, "{policy}");
        let strict = churn(policy, "strict").shim();
        assert_eq!(
            sourced(&strict, flags::ORDERED | flags::WAITED),
            0,
            "{policy}"
        );
        assert!(
            sourced(&strict, flags::HIT) > 20,
            "{policy}: {} hits",
            sourced(&strict, flags::HIT)
        );
    }
    assert_eq!(
        sourced(&churn("off", "order").shim(), flags::FORWARDED),
        600
    );
}

#[test]
fn a_driver_without_context_events_is_waited_for_instead() {
    for policy in POLICIES {
        let run = churn(policy, "order")
            .env("STANDIN_VERSION", "12040")
            .older_driver(&["cuCtxRecordEvent", "cuCtxWaitEvent"]);
        let (_, shim) = run.both();
        let absent = shim.trace().facts("hooks.absent").concat();
        println!("absent: {absent}");
        assert_eq!(sourced(&shim, flags::ORDERED), 0, "{policy}");
    }
}

#[test]
fn idle_memory_goes_back_to_the_driver() {
    for policy in POLICIES {
        let run = Run::new(program("decay"))
            .arg("1500")
            .env("GPUSHIM_POLICY", policy);
        let kept = run.clone().env("GPUSHIM_DECAY", "off").shim();
        assert!(kept.note("cached") > 100 << 20, "{policy}: {}", kept.stdout);
        assert_eq!(kept.note("left"), kept.note("cached"), "{policy}");
        let gone = run.env("GPUSHIM_DECAY", "100ms").shim();
        assert!(gone.note("cached") > 100 << 20, "{policy}: {}", gone.stdout);
        assert_eq!(gone.note("left"), 0, "{policy}");
        let trace = gone.trace();
        let released = sum(&trace.of(Kind::Release));
        assert_eq!(
            sum(&trace.of(Kind::Trim)),
            released,
            "{policy}: what the trace says was trimmed"
        );
        assert!(released > 100 << 20, "{policy}: {released}");
    }
}

#[test]
fn a_cache_of_nothing_keeps_nothing() {
    for policy in ["auto", "blocks"] {
        let run = Run::new(program("decay"))
            .arg("0")
            .env("GPUSHIM_POLICY", policy);
        let none = run.clone().env("GPUSHIM_CACHE_MAX", "0").shim();
        assert_eq!(none.note("cached"), 0, "{policy}");
        let some = run.env("GPUSHIM_CACHE_MAX", "20M").shim();
        assert!(
            (1..=20 << 20).contains(&some.note("cached")),
            "{policy}: {}",
            some.stdout
        );
    }
}

#[test]
fn peers_are_waited_for_too() {
    // Only under the shim: natively the free does not wait for another device's work, and the
    // stand-in reports it.
    for mode in MODES {
        for policy in POLICIES {
            for argument in ["enable", "disable"] {
                let run = Run::new(program("peers"))
                    .arg(argument)
                    .env("STANDIN_DEVICES", "2");
                let shim = run
                    .env("GPUSHIM_REUSE", mode)
                    .env("GPUSHIM_POLICY", policy)
                    .shim();
                assert!(
                    shim.stdout.ends_with("done\n"),
                    "{policy} {mode}: {}",
                    shim.stdout
                );
                let trace = shim.trace();
                assert_eq!(
                    trace.count(Kind::Alloc, Class::Device),
                    40,
                    "{policy} {mode}"
                );
                assert!(
                    trace
                        .class(Kind::Alloc, Class::Device)
                        .iter()
                        .all(|event| event.device == 0)
                );
            }
        }
    }
}

#[test]
fn the_race_detector_sees_what_peers_do() {
    let run = Run::new(program("peers"))
        .arg("enable")
        .env("STANDIN_DEVICES", "2")
        .env("DOOR", "default");
    let racing = run
        .preload_before(library("lib_unsafe", &[]))
        .may("")
        .native();
    assert!(racing.findings.len() > 3, "only {:?}", racing.findings);
}
