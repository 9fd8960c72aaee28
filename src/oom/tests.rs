//! Runs with a planted cause each, and runs alike in which it is not the cause.

use super::cause::{Cause, Place};
use super::explain::Evidence;
use super::text::{ExplainedShortage, OomReport};
use crate::ledger::Focus;
use crate::recording::Recording;
use crate::replay::planted::{Planted, PlantedBlock};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Returns the only request that failed.
fn explained(run: &Planted) -> ExplainedShortage {
    let snapshot = run.snapshot();
    let mut names = snapshot.names();
    let mut report = OomReport::of(&snapshot, Focus::of(&snapshot, None), None, &mut *names);
    assert_eq!(report.shortages.len(), 1);
    report.shortages.remove(0)
}

fn take(run: &mut Planted, function: &str, bytes: u64) -> PlantedBlock {
    run.take(function, 0, bytes).expect("memory")
}

/// Runs steps of a loop, each of which leaves memory behind, until all is full or they end.
fn steps(run: &mut Planted, number: usize, keeps: u64, activation: u64) {
    for _ in 0..number {
        let Some(batch) = run.take("load_batch", 0, 24 * MIB) else {
            return;
        };
        let Some(output) = run.take("forward", 0, activation) else {
            return;
        };
        if keeps > 0 && run.take("remember", 0, keeps).is_none() {
            return;
        }
        run.free(output);
        run.free(batch);
    }
}

/// Fills the device with segments of 62 MiB, of each of which a small block is kept.
fn pinned(run: &mut Planted, segments: usize) {
    // All are pinned before the rests are freed: each pin gets a segment of its own.
    let rests: Vec<_> = (0..segments).map(|_| run.pin(0, 62 * MIB)).collect();
    rests.into_iter().for_each(|rest| run.free(rest));
}

#[test]
fn a_leak_is_named_with_its_place_and_bytes() {
    let mut run = Planted::new(2 * GIB);
    steps(&mut run, 1000, 48 * MIB, 200 * MIB);
    let one = explained(&run);
    assert!(
        matches!(one.explanation.causes[..], [Cause::Growth { .. }]),
        "{one:#?}"
    );
    let Cause::Growth {
        kept,
        per_iteration,
    } = one.explanation.cause()
    else {
        unreachable!()
    };
    assert_eq!((kept % (48 * MIB), per_iteration), (0, 48 * MIB));
    let site = one.site().expect("its place").in_a_sentence();
    assert!(site.contains("remember"), "{site}");
    assert!(
        one.verdict.contains("without that it fits"),
        "{}",
        one.verdict
    );
    assert_eq!(one.explanation.by, Evidence::Replay);
}

#[test]
fn a_small_leak_is_not_the_cause_of_what_pieces_refuse() {
    let mut run = Planted::new(4 * GIB);
    pinned(&mut run, 60);
    steps(&mut run, 23, 3 * MIB, 20 * MIB);
    assert!(run.take("evaluate", 0, 1200 * MIB).is_none());
    let one = explained(&run);
    assert!(
        matches!(
            one.explanation.causes[..],
            [Cause::Fragmentation {
                of_framework: true,
                ..
            }]
        ),
        "{one:#?}"
    );
    assert!(!one.verdict.contains("remember"), "{}", one.verdict);
}

#[test]
fn blocks_that_wait_for_streams_are_the_cause_where_they_are_enough() {
    let run = |waiting: bool| {
        let mut run = Planted::new(GIB);
        take(&mut run, "load", 200 * MIB);
        for function in ["fetch_keys", "fetch_values", "fetch_weights"] {
            let block = take(&mut run, function, 220 * MIB);
            if waiting {
                run.drop_early(block);
            }
        }
        assert!(run.take("forward", 0, 300 * MIB).is_none());
        explained(&run)
    };
    let one = run(true);
    let bytes = 660 * MIB;
    assert_eq!(one.explanation.causes, [Cause::Waiting { bytes }]);
    assert!(one.advice[0].contains("Synchronise"), "{:?}", one.advice);
    // The same blocks, still held by the program.
    let one = run(false);
    assert!(
        matches!(one.explanation.causes[..], [Cause::Full { .. }]),
        "{one:#?}"
    );
    let mut advice = one.advice.iter();
    assert!(!advice.any(|advice| advice.contains("Synchronise")));
}

#[test]
fn caches_of_other_streams_are_the_cause_where_one_stream_would_fit() {
    let run = |stream: u64, asked: u64| {
        let mut run = Planted::new(GIB);
        let rests = [0; 2].map(|_| run.pin(stream, 300 * MIB));
        rests.into_iter().for_each(|rest| run.free(rest));
        take(&mut run, "forward", asked);
        assert!(run.take("backward", 0, asked).is_none());
        explained(&run)
    };
    let one = run(7, 290 * MIB);
    assert!(
        matches!(
            one.explanation.causes[..],
            [Cause::CachedElsewhere {
                place: Place::Stream,
                ..
            }]
        ),
        "{one:#?}"
    );
    assert!(one.advice[0].contains("one stream"), "{:?}", one.advice);
    // All is on one stream; its free pieces are too small.
    let one = run(0, 400 * MIB);
    assert!(
        matches!(one.explanation.causes[..], [Cause::Fragmentation { .. }]),
        "{one:#?}"
    );
    let mut advice = one.advice.iter();
    assert!(!advice.any(|advice| advice.contains("one stream")));
}

#[test]
fn expandable_segments_are_advised_where_they_would_have_met_it() {
    let mut run = Planted::new(4 * GIB);
    pinned(&mut run, 60);
    assert!(run.take("evaluate", 0, 1200 * MIB).is_none());
    let one = explained(&run);
    let is_advised = |one: &ExplainedShortage| {
        let mut advice = one.advice.iter();
        advice.any(|advice| advice.contains("expandable_segments"))
    };
    let mut others = one.explanation.fits.others();
    let fits = others.any(|policy| policy.name() == "torch-expandable");
    assert_eq!(is_advised(&one), fits, "{one:#?}");
    // A process that uses all memory itself.
    let mut run = Planted::new(GIB);
    take(&mut run, "load", 700 * MIB);
    assert!(run.take("forward", 0, 600 * MIB).is_none());
    let one = explained(&run);
    assert!(
        matches!(one.explanation.causes[..], [Cause::Full { .. }]),
        "{one:#?}"
    );
    assert!(!is_advised(&one));
    let short = "Ask for 276.0 MiB less, as with a smaller batch, or free some of the 700.0 MiB of `load train.py:416`.";
    assert_eq!(one.advice, [short]);
    let tried = one.evidence.iter().find(|line| line.contains("replayed"));
    let tried = tried.expect("replayed");
    assert!(
        tried.contains(" would not have met it; with 276.0 MiB more "),
        "{tried}"
    );
}
