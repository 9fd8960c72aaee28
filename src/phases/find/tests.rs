use super::*;
use crate::ledger::sample::Training;

fn phases(how: &Training) -> Vec<Phase> {
    let (_dir, trace) = how.record();
    let focus = Focus::of(&trace, None);
    let iterations = Iterations::find(&trace, focus);
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
