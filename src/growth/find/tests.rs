use crate::growth::GrowthReport;
use crate::growth::find::Growth;
use crate::ledger::Focus;
use crate::ledger::sample::{LEAK, Training};
use crate::loops::{Followed, Given, Marker, Recognised, Told};
use crate::recording::{Frame, Recording};
use gpushim_analysis::repeats::FEW;
use gpushim_trace::{StackNode, Trace};

fn growth(trace: &Trace) -> Option<Growth> {
    let focus = Focus::of(trace, None);
    let followed = Followed::of(trace, focus, None);
    Growth::of(&followed)
}

fn found(how: &Training) -> Growth {
    let (_dir, trace) = how.record();
    growth(&trace).unwrap_or_else(|| panic!("no iterations: {how:?}"))
}

fn near(seen: f64, planted: f64) -> bool {
    (seen - planted).abs() <= planted * 0.02
}

#[test]
fn a_leak_of_each_step_is_found_with_who_keeps_it() {
    for ranges in [true, false] {
        for varies in [true, false] {
            for takes_down in [true, false] {
                let how = Training {
                    ranges,
                    varies,
                    takes_down,
                    leak: 1_101_004,
                    ..Training::default()
                };
                let (_dir, trace) = how.record();
                let growth = growth(&trace).unwrap();
                assert!(growth.grows, "{how:?} {growth:?}");
                assert!(
                    near(growth.per_iteration, 1_101_004.0),
                    "{how:?} {growth:?}"
                );
                let keeper = &growth.keepers[0];
                assert!(
                    keeper.share > 0.98 && near(keeper.per_iteration, 1_101_004.0),
                    "{how:?} {growth:?}"
                );
                let innermost = trace.stack(keeper.stack).next();
                assert_eq!(innermost, Some(StackNode::Frame(LEAK)));
                let frames = trace.names().stack(keeper.stack);
                assert!(matches!(frames[0], Frame::Call(_)));
            }
        }
    }
}

#[test]
fn a_leak_of_every_third_step_is_found() {
    let growth = found(&Training {
        steps: 61,
        leak: 3 << 20,
        leaks_every: 3,
        ranges: true,
        ..Training::default()
    });
    assert!(
        growth.grows && near(growth.per_iteration, f64::from(1 << 20)),
        "{growth:?}"
    );
}

#[test]
fn it_is_the_same_without_stacks() {
    let growth = found(&Training {
        stacks: false,
        leak: 2_000_000,
        ..Training::default()
    });
    assert!(
        growth.is_found() && near(growth.per_iteration, 2e6),
        "{growth:?}"
    );
    assert_eq!(
        growth.judgement.told,
        Told::Likely,
        "sizes alone are never sure"
    );
}

#[test]
fn the_warm_up_is_told_from_growth() {
    // A cache that fills, and then a leak of another size.
    let growth = found(&Training {
        steps: 60,
        cache: (12, 5 << 20),
        leak: 1 << 20,
        ..Training::default()
    });
    assert!(
        growth.grows && near(growth.per_iteration, f64::from(1 << 20)),
        "{growth:?}"
    );
}

#[test]
fn nothing_is_found_in_clean_runs() {
    let mut seen = 0;
    for seed in 0..40_u64 {
        let how = Training {
            steps: 5 + seed % 7 * 15,
            layers: 2 + seed % 5 * 3,
            ranges: seed.is_multiple_of(2),
            stacks: !seed.is_multiple_of(3),
            varies: seed % 4 < 2,
            cache: if seed.is_multiple_of(5) {
                (3 + seed % 3, 2 << 20)
            } else {
                (0, 0)
            },
            takes_down: seed.is_multiple_of(7),
            seed,
            ..Training::default()
        };
        let (_dir, trace) = how.record();
        if let Some(growth) = growth(&trace) {
            seen += 1;
            // A few passes that each fill a cache cannot show if the next ones do so, too.
            let is_alarm = growth.is_found() && growth.telling > FEW;
            assert!(!growth.grows && !is_alarm, "{how:?} {growth:?}");
        }
    }
    assert!(seen >= 30, "iterations were found in {seen} of 40");
}

#[test]
fn three_iterations_tell_of_growth() {
    let how = Training {
        python: true,
        steps: 3,
        leak: 1_000_000,
        ..Training::default()
    };
    let (_dir, trace) = how.record();
    let focus = Focus::of(&trace, None);
    let marker = Marker::Name("Net.forward".to_string());
    let given = Given::find(&trace, focus, &marker).unwrap();
    let names = &mut *trace.names();
    let report = GrowthReport::of(&trace, focus, Some(&given), names);
    assert!(report.grows(), "{}", report.verdict);
    let growth = report.growth.unwrap();
    assert_eq!((growth.iterations, growth.per_iteration), (3, 1_000_000.0));
    let recognised = report.recognised.unwrap();
    let line = "3 iterations, recognised by the calls of `Net.forward`; sure: set by --iteration.";
    assert_eq!(recognised.line(), line);
    // Without a leak, nothing grows.
    let (_dir, trace) = Training { leak: 0, ..how }.record();
    let given = Given::find(&trace, focus, &marker).unwrap();
    let names = &mut *trace.names();
    let report = GrowthReport::of(&trace, focus, Some(&given), names);
    assert!(!report.grows(), "{}", report.verdict);
    let followed = Followed::of(&trace, focus, Some(&given));
    let iterations = followed.iterations.unwrap();
    assert!(Recognised::of(&iterations, names).certainty.set);
}
