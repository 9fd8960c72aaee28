use super::*;
use crate::ledger::sample::Training;

fn sum(trace: &dyn Recording, weight: Weight) -> u64 {
    let focus = Focus::of(trace, None);
    weights(trace, focus, weight)
        .iter()
        .map(|(_, bytes)| bytes)
        .sum()
}

#[test]
fn each_weight_is_its_own_sum() {
    for ranges in [true, false] {
        let how = Training {
            ranges,
            leak: 5 << 20,
            ..Training::default()
        };
        let (_dir, trace) = how.record();
        let layers = |each: u64, more: u64| (0..6).map(|layer| each + layer * more).sum::<u64>();
        let stays = layers(4 << 20, 4096) + layers(8 << 20, 8192) + 30 * (5 << 20);
        assert_eq!(sum(&trace, Weight::Live), stays);
        let focus = Focus::of(&trace, None);
        let peak = Peak::at(&trace, focus, Moment::Peak);
        assert_eq!(sum(&trace, Weight::Peak), peak.bytes);
        // Activations, their temporaries and gradients of a step.
        let step = layers(1_200_000, 512) + 6 * 400_000 + layers(4 << 20, 4096);
        assert_eq!(sum(&trace, Weight::Total), stays + 30 * step);
        let temporary = sum(&trace, Weight::Temporary);
        // Where they have to be found, the first or the last may be cut off.
        let least = if ranges { 30 * step } else { 28 * step };
        assert!(
            (least..=30 * step).contains(&temporary),
            "{temporary} {step}"
        );
    }
}

/// Without iterations, what is freed in its own range.
#[test]
fn temporary_within_a_range() {
    let how = Training {
        ranges: true,
        steps: 2,
        ..Training::default()
    };
    let (_dir, trace) = how.record();
    let focus = Focus::of(&trace, None);
    assert_eq!(Iterations::find(&trace, focus), None);
    assert_eq!(sum(&trace, Weight::Temporary), 2 * 6 * 400_000);
}
