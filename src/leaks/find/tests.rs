use super::*;
use crate::ledger::Focus;
use crate::ledger::sample::{LEAK, Training};
use gpushim_trace::StackNode;

fn leaks(how: &Training) -> (Leaks, Vec<StackNode>) {
    let (_dir, trace) = how.record();
    let focus = Focus::of(&trace, None);
    let followed = Followed::of(&trace, focus, None);
    let leaks = Leaks::of(&trace, &followed);
    let innermost = leaks
        .left
        .iter()
        .filter(|left| left.per_iteration.is_some());
    let innermost = innermost.filter_map(|left| trace.stack(left.held.stack).next());
    let innermost = innermost.collect();
    (leaks, innermost)
}

#[test]
fn what_each_iteration_leaves_behind_is_a_leak() {
    for (ranges, takes_down) in [(true, true), (true, false), (false, true), (false, false)] {
        let how = Training {
            ranges,
            takes_down,
            leak: 10_000,
            ..Training::default()
        };
        let (leaks, functions) = leaks(&how);
        assert_eq!(functions, [StackNode::Frame(LEAK)], "{how:?}");
        assert!(leaks.before_last_iteration);
        assert_eq!(leaks.leaked, 29 * 10_000, "{how:?} {leaks:?}");
    }
}

#[test]
fn what_a_run_holds_is_none() {
    let (leaks, functions) = leaks(&Training {
        cache: (5, 1 << 20),
        ..Training::default()
    });
    assert_eq!(functions, []);
    assert_eq!(leaks.leaked, 0);
    // Parameters, state and what was cached.
    assert_eq!(leaks.left.len(), 6 + 6 + 1, "{leaks:?}");
    let layers =
        |each: u64, more: u64| (0..6).map(|layer| (each << 20) + layer * more).sum::<u64>();
    assert_eq!(leaks.bytes, layers(4, 4096) + layers(8, 8192) + (5 << 20));
}

#[test]
fn without_iterations_the_end_counts() {
    let how = Training {
        steps: 1,
        layers: 1,
        ..Training::default()
    };
    let (leaks, functions) = leaks(&how);
    assert!(!leaks.before_last_iteration && functions.is_empty());
    assert_eq!(leaks.bytes, 12 << 20);
}
