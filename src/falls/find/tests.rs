use super::*;
use crate::ledger::Moment;
use crate::ledger::sample::{PARAMETERS, Training};
use crate::loops::{By, Certainty, Iterations, Start};
use crate::peak::Peak;
use gpushim_trace::{Class, Event, Trace, Writer, WriterOptions};

fn lasting(trace: &Trace) -> Option<LastingFall> {
    let focus = Focus::of(trace, None);
    let found = LastingFall::of(trace, focus, &Followed::of(trace, focus, None))?;
    begins_after_the_moment_before(&found, trace);
    Some(found)
}

/// Checks that memory is highest at the moment just before a fall.
fn begins_after_the_moment_before(found: &LastingFall, trace: &Trace) {
    let before = Peak::at(trace, Focus::of(trace, None), Moment::Ns(found.before_ns));
    assert_eq!(before.bytes, found.fall.from.bytes, "{found:#?}");
}

/// Finds the fall, with iterations that begin where this many bytes are allocated.
fn by_size(trace: &Trace, bytes: u64) -> Option<LastingFall> {
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
    let focus = Focus::of(trace, None);
    let mut followed = Followed::of(trace, focus, None);
    followed.iterations = Some(iterations);
    let found = LastingFall::of(trace, focus, &followed)?;
    begins_after_the_moment_before(&found, trace);
    Some(found)
}

fn levels(found: &LastingFall) -> (u64, u64, u64) {
    let fall = &found.fall;
    (
        fall.from.bytes >> 20,
        fall.to.bytes >> 20,
        fall.stays() >> 20,
    )
}

#[test]
fn falls_of_each_iteration_do_not_last() {
    for ranges in [true, false] {
        for takes_down in [true, false] {
            let how = Training {
                ranges,
                takes_down,
                ..Training::default()
            };
            let (_dir, trace) = how.record();
            let found = lasting(&trace);
            assert!(found.is_none(), "{found:#?}");
        }
    }
}

/// Records sizes over time. Positive numbers are allocated, with their index as stack; negative
/// ones name the block to free, and 0 ends the context.
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
    // 40 stay, 20 are freed and allocated again.
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
    let found = lasting(&trace).unwrap();
    assert_eq!(levels(&found), (90, 30, 40));
    assert_eq!(found.holder.unwrap().bytes, 40 << 20);
    let text = found.sentence(&mut *trace.names());
    let (_, text) = text.split_once(" memory ").unwrap();
    assert!(
        text.starts_with(
            "fell by 60.0 MiB to 30.0 MiB and stays 40.0 MiB lower: freed by the program; \
             40.0 MiB in 1 block"
        ),
        "{text}"
    );
    // Memory rises again to its level before the fall.
    back.push(40);
    (0..5).for_each(|_| swing(&mut back));
    let (_dir, trace) = made(&back);
    assert!(lasting(&trace).is_none());
}

/// A fall beside which the levels before and after it are small; in the end all is freed.
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
    let found = by_size(&trace, 8 << 20).unwrap();
    assert_eq!(levels(&found), (238, 30, 200));
    assert!(!found.fall.is_reset() && found.iteration == Some(39));
    // The end of a run.
    let (_dir, trace) = made(&steps[..at_once + 4]);
    assert!(by_size(&trace, 8 << 20).is_none());
    // Without repetitions, the fall may belong to the run.
    let (_dir, trace) = made(&steps);
    assert!(lasting(&trace).is_none());
}

#[test]
fn a_context_that_is_reset() {
    let (_dir, trace) = made(&[40, 30, 0, 40, 30]);
    let found = lasting(&trace).unwrap();
    assert_eq!(levels(&found), (70, 0, 0));
    let text = found.sentence(&mut *trace.names());
    let expected = "memory fell by 70.0 MiB to 0 B: a context was reset or destroyed; 40.0 MiB in ";
    assert!(text.contains(expected), "{text}");
    // A fall at the end of the run is not reported.
    let (_dir, trace) = made(&[40, 30, 0]);
    assert!(lasting(&trace).is_none());
}
