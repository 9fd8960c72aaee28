use super::*;
use crate::ledger::sample::Training;

#[test]
fn names_without_numbers() {
    assert_eq!(without_numbers("step 12 of 300"), "step # of #");
    assert_eq!(without_numbers("forward"), "forward");
    assert_eq!(without_numbers("7"), "#");
    assert_eq!(without_numbers("17/300 é"), "#/# é");
    assert_eq!(without_numbers(""), "");
}

#[test]
fn each_step_is_one() {
    for ranges in [true, false] {
        for stacks in [true, false] {
            for steps in [4, 5, 30, 100] {
                let how = Training {
                    ranges,
                    stacks,
                    steps,
                    ..Training::default()
                };
                let (_dir, trace) = how.record();
                let focus = Focus::of(&trace, None);
                let found =
                    Iterations::find(&trace, focus, None).unwrap_or_else(|| panic!("{how:?}"));
                assert_eq!(found.count() as u64, steps, "{how:?} {:?}", found.by);
                assert_eq!(matches!(found.by, By::Range(_)), ranges);
                assert!(found.starts.is_sorted_by(|a, b| a.ticket < b.ticket));
            }
        }
    }
}

#[test]
fn what_does_not_repeat_has_none() {
    let how = Training {
        steps: 2,
        layers: 1,
        ..Training::default()
    };
    let (_dir, trace) = how.record();
    assert_eq!(
        Iterations::find(&trace, Focus::of(&trace, None), None),
        None
    );
}

#[test]
fn the_option_that_set_them_is_told_for_a_shell() {
    let option = |by: By, certainty| {
        let starts = Vec::new();
        let iterations = Iterations {
            by,
            starts,
            certainty,
        };
        iterations.option()
    };
    let range = |name: &str| By::Range(name.to_string());
    for (by, expected) in [
        (range("step"), "--iteration step"),
        (range("step #"), "--iteration 'step #'"),
        (range("it's"), r"--iteration 'it'\''s'"),
        (
            By::Function("Net.forward".to_string()),
            "--iteration Net.forward",
        ),
        (By::Size(4096), "--iteration 4096"),
    ] {
        assert_eq!(option(by, Certainty::set()).as_deref(), Some(expected));
    }
    assert_eq!(option(range("step"), Certainty::default()), None);
}
