use super::*;
use crate::ledger::sample::Training;

#[test]
fn the_holders_of_a_moment_are_all_that_was_live() {
    let (_dir, trace) = Training::default().record();
    let focus = Focus::of(&trace, None);
    let peak = Peak::at(&trace, focus, Moment::Peak);
    let sum: u64 = peak.holders.iter().map(|held| held.bytes).sum();
    assert_eq!(peak.bytes, sum);
    // Parameters, state, all gradients, and the activations of the first layer: backward has freed
    // the others.
    let layers = |each: u64, more: u64| (0..6).map(|layer| each + layer * more).sum::<u64>();
    let expected = layers(4 << 20, 4096) * 2 + layers(8 << 20, 8192) + 1_200_000;
    assert_eq!(peak.bytes, expected);
    let report = crate::report::summarize(&trace);
    let tensors = report.devices[0].tensors.as_ref().unwrap().tensors;
    assert_eq!((tensors.peak, tensors.peak_ns), (peak.bytes, Some(peak.ns)));
    // The same moment by its time; at the end, less is live.
    let again = Peak::at(&trace, focus, Moment::Ns(peak.ns));
    assert_eq!((again.bytes, &again.holders), (peak.bytes, &peak.holders));
    let end = Peak::at(&trace, focus, Moment::End);
    assert_eq!(end.bytes, layers(4 << 20, 4096) + layers(8 << 20, 8192));
    assert_eq!(
        Peak::at(&trace, focus, Moment::Ns(u64::MAX)).bytes,
        end.bytes
    );
}
