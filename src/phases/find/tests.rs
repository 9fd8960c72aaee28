use serde_json::json;

use super::*;
use crate::ledger::Moment;
use crate::ledger::sample::Training;
use crate::peak::Peak;
use crate::phases::PhasesReport;
use crate::recording::sample::{AT, MIB, entry, frames, snapshot};
use gpushim_trace::{Class, Event, Trace, Writer, WriterOptions};

fn phases(how: &Training) -> Vec<Phase> {
    let (_dir, trace) = how.record();
    let focus = Focus::of(&trace, None);
    let iterations = Iterations::find(&trace, focus, None);
    Phase::all(&trace, focus, iterations.as_ref())
}

#[test]
fn forward_backward_and_optimizer_add_up() {
    let phases = phases(&Training {
        ranges: true,
        steps: 10,
        leak: 5000,
        ..Training::default()
    });
    let names: Vec<_> = phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.depth, phase.count))
        .collect();
    assert_eq!(
        names,
        [
            ("step #", 0, 10),
            ("forward", 1, 10),
            ("backward", 1, 10),
            ("optimizer", 1, 10)
        ]
    );
    let [step, forward, backward, optimizer] = &phases[..] else {
        panic!("{phases:?}");
    };
    let activations: u64 = (0..6).map(|layer| 1_200_000 + layer * 512).sum();
    let gradients: u64 = (0..6).map(|layer| (4 << 20) + layer * 4096).sum();
    let state: u64 = (0..6).map(|layer| (8 << 20) + layer * 8192).sum();
    assert_eq!(
        (forward.kept, forward.temporary),
        (10 * (activations + 5000), 10 * 6 * 400_000)
    );
    assert_eq!(
        (forward.freed, forward.peak_above_entry),
        (0, activations + 400_000)
    );
    assert_eq!(
        (backward.kept, backward.freed),
        (10 * gradients, 10 * activations)
    );
    assert_eq!((optimizer.kept, optimizer.freed), (state, 10 * gradients));
    // Gradients and activations are temporary in a step.
    assert_eq!((step.kept, step.freed), (state + 10 * 5000, 0));
    assert_eq!(
        step.allocated,
        forward.allocated + backward.allocated + optimizer.allocated
    );
    assert!(step.ns >= forward.ns + backward.ns + optimizer.ns);
}

#[test]
fn iterations_without_ranges_are_phases_too() {
    let phases = phases(&Training::default());
    let names: Vec<_> = phases
        .iter()
        .map(|phase| (phase.name.as_str(), phase.count))
        .collect();
    assert_eq!(names, [("iteration", 30)]);
    assert!(phases[0].peak_above_entry > 0);
}

#[test]
fn ranges_that_end_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    let [load, step] = ["load", "Optimizer.step#Adam.step"].map(|name| writer.intern(name));
    let event = |kind, thread, address, size| {
        writer.record(&Event {
            thread,
            address,
            size,
            ..Event::new(kind, Class::Device)
        });
    };
    for round in 0..3_u64 {
        let block = |number: u64| 0x1000 * (10 * round + number);
        event(Kind::RangeStart, 1, load.into(), 7);
        event(Kind::Alloc, 1, block(1), 100);
        event(Kind::RangeStart, 2, step.into(), 8);
        event(Kind::Alloc, 1, block(2), 10);
        event(Kind::RangeEnd, 2, 0, 7);
        event(Kind::Free, 1, block(1), 100);
        event(Kind::RangeEnd, 1, 0, 8);
        event(Kind::Alloc, 1, block(3), 1);
    }
    // It never ends, and another with its number begins.
    event(Kind::RangeStart, 1, load.into(), 9);
    event(Kind::RangeStart, 1, load.into(), 9);
    let trace = Trace::open(writer.path()).unwrap();
    let focus = Focus::of(&trace, None);
    let phases = Phase::all(&trace, focus, None);
    let told: Vec<_> = phases
        .iter()
        .map(|one| {
            (
                one.name.as_str(),
                one.depth,
                one.count,
                one.allocated,
                one.freed,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("load", 0, 5, 3 * 110, 0),
            ("Optimizer.step#Adam.step", 1, 3, 3 * 10, 3 * 100)
        ]
    );
}

#[test]
fn what_was_there_before_is_in_no_range() {
    let annotation = |stage: &str, time: u64| json!({"stage": stage, "name": "compile", "device": 0, "time_us": time});
    let ranges = [annotation("START", 10), annotation("END", 900)];
    let made = snapshot(
        &[entry("alloc", AT + 9 * MIB, Some(500), &frames(9))],
        &ranges,
    );
    let focus = Focus::of(&made, None);
    let report = PhasesReport::of(&made, focus, None, &mut *made.names());
    let phase = report.phases.iter().find(|phase| phase.name == "compile");
    let phase = phase.expect("the range");
    assert_eq!(
        (phase.allocated, phase.kept, phase.peak),
        (MIB, MIB, 5 * MIB)
    );
    let early = Peak::at(&made, focus, Moment::Ns(100_000));
    assert_eq!((early.bytes, early.blocks), (4 * MIB, 4));
}
