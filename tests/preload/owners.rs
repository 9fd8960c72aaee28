//! Python programs whose objects keep device memory: the trace says by which name, in every version
//! of CPython.

use std::collections::HashMap;
use std::path::Path;

use gpushim_trace::{Kind, Occasion, OwnerWords, Trace};

use crate::python::{Python, pythons, run};
use crate::support::{Outcome, Run};

fn keepers(python: &Python, case: &str) -> Run {
    run(python, "keepers.py", &[case]).env("GPUSHIM_OWNERS", "auto")
}

/// The owner of each block, by address, of the first walk for an occasion: kind of reference, and
/// path.
fn owners(path: &Path, occasion: Occasion) -> HashMap<u64, (String, String)> {
    let trace = Trace::open(path).expect("a trace");
    let mut found = HashMap::new();
    for event in trace.events().map(|record| record.event) {
        match event.kind {
            Kind::Owner => {
                let words = OwnerWords::unpack(event.extra);
                let path = trace.string(words.path).unwrap_or_default();
                found.insert(
                    event.address,
                    (words.kept.name().to_string(), path.to_string()),
                );
            }
            Kind::OwnersWalk if Occasion::from_number(event.address) == occasion => return found,
            Kind::OwnersWalk => found.clear(),
            _ => {}
        }
    }
    panic!("no walk for {occasion:?}");
}

/// Compares the owners that the program expects with the owners of the first walk for an occasion.
fn check(python: &Python, outcome: &Outcome, occasion: Occasion) {
    let trace = outcome.trace();
    let found = owners(trace.path(), occasion);
    let mut count = 0;
    for line in outcome.stdout.lines() {
        let fields: Vec<_> = line.split('\t').collect();
        let [address, kept, path] = fields.as_slice() else {
            panic!("{line}");
        };
        let address = address.parse().expect("an address");
        let expected = (kept.to_string(), path.to_string());
        assert_eq!(found.get(&address), Some(&expected), "{python:?}: {line}");
        count += 1;
    }
    assert!(count > 0, "{python:?}");
}

#[test]
fn names_of_blocks_when_the_program_asks() {
    for python in pythons() {
        for case in [
            "asked",
            "joined",
            "worker",
            "unowned",
            "interrupted",
            "forked",
            "lifetimes",
            "many",
        ] {
            let outcome = keepers(&python, case).shim();
            assert_eq!(outcome.code, 0, "{python:?} {case}: {}", outcome.stderr);
            let ours = outcome
                .stderr
                .lines()
                .find(|line| line.starts_with("gpushim:"));
            assert_eq!(ours, None, "{python:?} {case}");
            check(&python, &outcome, Occasion::Asked);
        }
    }
}

#[test]
fn a_tracer_does_not_see_the_walk() {
    for python in pythons().into_iter().filter(|python| python.minor >= 11) {
        let outcome = keepers(&python, "traced").shim();
        assert_eq!(outcome.code, 0, "{python:?}: {}", outcome.stderr);
        check(&python, &outcome, Occasion::Asked);
    }
}

#[test]
fn names_of_blocks_before_the_end() {
    for python in pythons() {
        let outcome = keepers(&python, "end").shim();
        assert_eq!(outcome.code, 0, "{python:?}: {}", outcome.stderr);
        check(&python, &outcome, Occasion::End);
    }
}

#[test]
fn names_of_blocks_at_an_out_of_memory() {
    for python in pythons() {
        let outcome = keepers(&python, "shortage").shim();
        assert_eq!(outcome.code, 1, "{python:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("MemoryError"), "{}", outcome.stderr);
        check(&python, &outcome, Occasion::OutOfMemory);
    }
}

#[test]
fn nothing_is_walked_unless_it_is_asked_for() {
    for python in pythons() {
        for (name, value) in [("GPUSHIM_OWNERS", "off"), ("GPUSHIM_TRACE_FACTS", "none")] {
            let outcome = keepers(&python, "end").env(name, value).shim();
            assert_eq!(outcome.code, 0, "{python:?}: {}", outcome.stderr);
            let trace = outcome.trace();
            assert_eq!(trace.of(Kind::Owner), [], "{python:?} {name}");
            assert_eq!(trace.of(Kind::OwnersWalk), [], "{python:?} {name}");
        }
    }
}
