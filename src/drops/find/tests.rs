use super::*;
use crate::drops::fall::Cause;
use crate::ledger::sample::{PARAMETERS, Training};
use crate::loops::{By, Certainty, Start};
use gpushim_trace::{Class, Event, Kind, Trace, Writer, WriterOptions};

impl Drops {
    /// Those that last: memory falls below where it was before, and never comes back.
    fn lasting(&self) -> impl Iterator<Item = &Drop> {
        let all = self.drops.iter();
        all.filter(|drop| drop.largest.lasting.is_some())
    }
}

fn drops(trace: &Trace) -> Drops {
    let focus = Focus::of(trace, None);
    let iterations = Iterations::find(trace, focus);
    Drops::of(trace, focus, iterations.as_ref())
}

/// With iterations that begin where so much is allocated.
fn by_size(trace: &Trace, bytes: u64) -> Drops {
    let begins = trace
        .events()
        .filter(|record| record.event.kind == Kind::Alloc && record.event.size == bytes);
    let starts = begins.map(|record| Start {
        ns: record.ns,
        ticket: record.ticket,
    });
    let iterations = Iterations {
        by: By::Size(bytes),
        starts: starts.collect(),
        certainty: Certainty::default(),
    };
    Drops::of(trace, Focus::of(trace, None), Some(&iterations))
}

#[test]
fn what_each_iteration_frees_is_told_once() {
    for ranges in [true, false] {
        for takes_down in [true, false] {
            let how = Training {
                ranges,
                takes_down,
                ..Training::default()
            };
            let (_dir, trace) = how.record();
            let found = drops(&trace);
            assert_eq!(found.lasting().count(), 0, "{found:#?}");
            let often: Vec<_> = found.drops.iter().filter(|one| one.times > 2).collect();
            assert_eq!(often.len(), 1, "{found:#?}");
            assert!(often[0].iterations >= 28, "{found:#?}");
            let cause = Cause::Range("optimizer".to_string());
            assert_eq!(often[0].cause == cause, ranges, "{found:#?}");
            let last = found.drops.iter().find(|one| one.cause == Cause::EndOfRun);
            assert!(last.is_some(), "{found:#?}");
        }
    }
}

/// Sizes over time: positive numbers are allocated, with their index as stack, negative ones say which to free.
fn made(steps: &[i64]) -> (tempfile::TempDir, Trace) {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    for (index, step) in (1_u64..).zip(steps) {
        let event = |kind, address: u64, size| Event {
            device: 0,
            thread: 7,
            address: address << 30,
            size,
            ..Event::new(kind, Class::Device)
        };
        match u64::try_from(*step) {
            Ok(0) => {
                writer.record(&Event {
                    device: Event::NO_DEVICE,
                    extra: [u64::MAX, 0],
                    ..event(Kind::ContextGone, 0, 1 << 40)
                });
            }
            Ok(size) => writer.record_alloc(&Event {
                stack: writer.stack(0, &[PARAMETERS + index]),
                ..event(Kind::Alloc, index, size << 20)
            }),
            Err(_) => {
                writer.record_free(&event(Kind::Free, step.unsigned_abs(), 0));
            }
        }
    }
    let trace = Trace::open(writer.path()).unwrap();
    (dir, trace)
}

#[test]
fn memory_that_comes_back_and_memory_that_does_not() {
    // 40 that stay, 20 that come and go.
    let swing = |steps: &mut Vec<i64>| {
        steps.push(20);
        let last = steps.len() as i64;
        steps.push(-last);
    };
    let mut steps = vec![40, 30];
    (0..5).for_each(|_| swing(&mut steps));
    steps.push(-1);
    let mut back = steps.clone();
    (0..5).for_each(|_| swing(&mut steps));
    let (_dir, trace) = made(&steps);
    let found = drops(&trace);
    let lasting: Vec<_> = found.lasting().collect();
    assert_eq!(lasting.len(), 1, "{found:#?}");
    let fallen = &lasting[0].largest;
    assert_eq!((fallen.from, fallen.to), (90 << 20, 30 << 20));
    assert_eq!((fallen.lasting, fallen.below), (Some(40 << 20), 40 << 20));
    assert_eq!(fallen.holders[0].bytes, 40 << 20);
    assert_eq!(fallen.thread, 7);
    // The same, but it comes back.
    back.push(40);
    (0..5).for_each(|_| swing(&mut back));
    let (_dir, trace) = made(&back);
    assert_eq!(drops(&trace).lasting().count(), 0);
}

/// What happens before and afterwards is small beside it, and in the end all is freed.
#[test]
fn a_run_that_goes_on_far_below() {
    let mut steps = vec![200, 30];
    let swing = |steps: &mut Vec<i64>| {
        steps.push(8);
        let last = steps.len() as i64;
        steps.push(-last);
    };
    (0..40).for_each(|_| swing(&mut steps));
    steps.push(-1);
    let at_once = steps.len();
    (0..40).for_each(|_| swing(&mut steps));
    steps.push(-2);
    let (_dir, trace) = made(&steps);
    let found = by_size(&trace, 8 << 20);
    let lasting: Vec<_> = found.lasting().collect();
    assert_eq!(lasting.len(), 1, "{found:#?}");
    let fallen = &lasting[0].largest;
    assert_eq!((fallen.from, fallen.to), (238 << 20, 30 << 20));
    assert_eq!(fallen.lasting, Some(200 << 20));
    assert_eq!(lasting[0].cause, Cause::Freed);
    // The end of a run.
    let (_dir, trace) = made(&steps[..at_once + 4]);
    assert_eq!(by_size(&trace, 8 << 20).lasting().count(), 0);
    // Where nothing repeats it may be the run's own way.
    let (_dir, trace) = made(&steps);
    assert_eq!(drops(&trace).lasting().count(), 0);
}

#[test]
fn a_context_that_is_reset() {
    let (_dir, trace) = made(&[40, 30, 0, 40, 30]);
    let found = drops(&trace);
    let lasting: Vec<_> = found.lasting().collect();
    assert_eq!(lasting.len(), 1, "{found:#?}");
    assert_eq!(lasting[0].cause, Cause::ContextReset);
    assert_eq!(
        (lasting[0].largest.from, lasting[0].largest.to),
        (70 << 20, 0)
    );
    // At the end of the run it is nobody's loss.
    let (_dir, trace) = made(&[40, 30, 0]);
    assert_eq!(drops(&trace).lasting().count(), 0);
}
