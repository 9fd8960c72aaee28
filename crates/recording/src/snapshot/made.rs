//! Snapshots that lack some data, each beside a complete one.

use serde_json::{Value, json};

use super::*;
use crate::sample::{AT, MIB, entry, frames, snapshot};

fn number(snapshot: &Snapshot, kind: Kind) -> usize {
    let events = snapshot.events();
    events.filter(|record| record.event.kind == kind).count()
}

#[test]
fn a_history_without_an_allocation_is_none() {
    let last = entry("free_completed", AT + 9 * MIB, Some(50), &frames(9));
    let one = snapshot(std::slice::from_ref(&last), &[]);
    assert!(one.is_one_moment());
    assert!(one.events().all(|record| record.ns == 0));
    assert_eq!(number(&one, Kind::TensorAlloc), 4);
    // A request that failed is a history, and so is an allocation.
    for action in ["oom", "alloc"] {
        let more = entry(action, AT + 9 * MIB, Some(40), &frames(9));
        assert!(
            !snapshot(&[more, last.clone()], &[]).is_one_moment(),
            "{action}"
        );
    }
}

#[test]
fn frees_that_only_their_completion_tells() {
    let at = AT + 9 * MIB;
    let alloc = entry("alloc", at, Some(40), &frames(9));
    let completed = entry("free_completed", at, Some(60), &frames(9));
    let only = snapshot(&[alloc.clone(), completed.clone()], &[]);
    assert_eq!(number(&only, Kind::TensorFree), 1);
    assert_eq!(only.live().map(|live| live.len()), Some(4));
    // If frees are requested, a completion is no further free.
    let requested = entry("free_requested", at, Some(50), &frames(9));
    let both = snapshot(&[alloc, requested, completed], &[]);
    assert_eq!(number(&both, Kind::TensorFree), 1);
    assert_eq!(both.problems(), [""; 0]);
}

#[test]
fn times_that_were_not_recorded_are_said_and_no_damage() {
    let timed = |time| {
        let at = |action| entry(action, AT + 9 * MIB, time, &frames(9));
        snapshot(&[at("alloc"), at("free_requested")], &[])
    };
    let without = timed(None);
    assert_eq!(without.problems(), [""; 0]);
    assert!(!without.has_times());
    let told = |snapshot: &Snapshot| snapshot.facts().iter().any(|(key, _)| key == "times");
    assert!(told(&without));
    let with = timed(Some(40));
    assert!(with.has_times() && !told(&with));
}

#[test]
fn lines_of_generated_code_are_one_place() {
    let called = |generated: &str, line: u64, own: u64| {
        json!([
            {"name": "call", "filename": generated, "line": line},
            {"name": "forward", "filename": "/home/user/net.py", "line": own},
        ])
    };
    let number = |first: Value, second: Value| {
        let [a, b] = [(9, first), (10, second)]
            .map(|(at, frames)| entry("alloc", AT + at * MIB, Some(40 + at), &frames));
        let made = snapshot(&[a, b], &[]);
        let stacks = made
            .events()
            .filter(|one| one.event.flags & flags::EARLIER == 0);
        let mut stacks: Vec<u64> = stacks.map(|one| made.frames(one.event.stack)).collect();
        stacks.dedup();
        stacks.len()
    };
    let inductor = "/tmp/torchinductor_user/ey/cey3b.py";
    assert_eq!(
        number(called(inductor, 1456, 77), called(inductor, 1856, 77)),
        1
    );
    // Another line of the user's own, or of code that is not generated.
    assert_eq!(
        number(called(inductor, 1456, 77), called(inductor, 1856, 79)),
        2
    );
    let own = "/home/user/kernels.py";
    assert_eq!(number(called(own, 1456, 77), called(own, 1856, 77)), 2);
}
