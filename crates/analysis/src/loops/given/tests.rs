use super::*;
use crate::ledger::sample::Training;
use crate::loops::Iterations;
use gpushim_trace::{Class, Trace, Writer, WriterOptions};
use gpushim_trace::{Event, Layer};

fn name(name: &str) -> Marker {
    Marker::Name(name.to_string())
}

/// Returns the mark of the iterations and their number.
fn set(trace: &Trace, marker: &Marker) -> Result<(By, usize)> {
    let focus = Focus::of(trace, None);
    let given = Given::find(trace, focus, marker)?;
    let found = Iterations::find(trace, focus, Some(&given)).unwrap();
    assert!(found.certainty.sure && found.certainty.set);
    assert!(found.starts.is_sorted_by(|a, b| a.ticket < b.ticket));
    Ok((found.by.clone(), found.count()))
}

#[test]
fn ranges_by_their_names() {
    let how = Training {
        ranges: true,
        steps: 12,
        ..Training::default()
    };
    let (_dir, trace) = how.record();
    let range = |name: &str| By::Range(name.to_string());
    for (marker, by) in [
        ("forward", "forward"),
        ("step #", "step #"),
        ("step 3", "step #"),
        ("step", "step"),
    ] {
        let (found, count) = set(&trace, &name(marker)).unwrap();
        assert_eq!((found, count), (range(by), 12), "{marker}");
    }
    // The last iteration ends with its range and not with the run.
    let focus = Focus::of(&trace, None);
    let given = Given::find(&trace, focus, &name("forward")).unwrap();
    let found = Iterations::find(&trace, focus, Some(&given)).unwrap();
    let last = trace.events().last().unwrap();
    assert!(found.starts.last().unwrap().ticket < last.ticket);
}

#[test]
fn a_range_with_numbers_that_comes_again_is_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    for round in 0..5 {
        for part in ["part 1", "part 2"] {
            let id = writer.intern(part);
            let event = Event {
                address: id.into(),
                ..Event::new(Kind::RangePush, Class::Device)
            };
            writer.record(&event);
            let block = Event {
                device: 0,
                address: (round + 1) << 20,
                size: 4096,
                ..Event::new(Kind::Alloc, Class::Device)
            };
            writer.record_alloc(&block);
            writer.record_free(&Event {
                kind: Kind::Free,
                ..block
            });
            writer.record(&Event::new(Kind::RangePop, Class::Device));
        }
    }
    let trace = Trace::open(writer.path()).unwrap();
    let count = |marker: &str| set(&trace, &name(marker)).unwrap().1;
    assert_eq!(
        (count("part 2"), count("part 7"), count("part")),
        (5, 10, 10)
    );
}

#[test]
fn ranges_that_end_in_any_order_count() {
    let record = |called: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.trace");
        let writer = Writer::create(&path, &WriterOptions::default()).unwrap();
        let id = writer.intern(called);
        for round in 0..6_u64 {
            let range = |kind, thread, address| {
                let event = Event {
                    thread,
                    address,
                    size: 40 + round,
                    ..Event::new(kind, Class::Device)
                };
                writer.record(&event);
            };
            range(Kind::RangeStart, 1, id.into());
            // An equal range on another thread.
            range(Kind::RangeStart, 2, id.into());
            let block = Event {
                device: 0,
                address: (round + 1) << 20,
                size: 4096 * (round + 1),
                ..Event::new(Kind::Alloc, Class::Device)
            };
            writer.record_alloc(&block);
            range(Kind::RangeEnd, 3, 0);
        }
        (dir, Trace::open(writer.path()).unwrap())
    };
    let (_dir, trace) = record("work");
    let focus = Focus::of(&trace, None);
    assert_eq!(Iterations::find(&trace, focus, None), None);
    let by = |name: &str| By::Range(name.to_string());
    assert_eq!(set(&trace, &name("work")).unwrap(), (by("work"), 6));
    // A range whose name marks an iteration is found.
    let (_dir, trace) = record("step 1");
    let found = Iterations::find(&trace, focus, None).unwrap();
    assert_eq!((&found.by, found.count()), (&by("step #"), 6));
    assert!(found.certainty.sure && !found.certainty.set);
}

#[test]
fn functions_by_their_calls() {
    for (steps, micro_batches) in [(2, 1), (3, 1), (12, 1), (12, 4)] {
        let how = Training {
            python: true,
            varies: true,
            steps,
            micro_batches,
            ..Training::default()
        };
        let (_dir, trace) = how.record();
        let calls = (steps * micro_batches) as usize;
        for marker in ["Net.forward", "forward train.py"] {
            let (by, count) = set(&trace, &name(marker)).unwrap();
            let expected = By::Function("Net.forward".to_string());
            assert_eq!((by, count), (expected, calls), "{how:?}");
        }
        // Two functions have that name.
        let (by, count) = set(&trace, &name("forward")).unwrap();
        assert_eq!(count, calls);
        assert!(matches!(by, By::Function(_)), "{by:?}");
        // An iteration begins with the first allocation of the call.
        let focus = Focus::of(&trace, None);
        let given = Given::find(&trace, focus, &name("Net.forward")).unwrap();
        let found = Iterations::find(&trace, focus, Some(&given)).unwrap();
        let mut names = trace_names(&trace);
        let mut is_forward = |event: &Event| {
            let frames = names.stack(event.stack);
            calls_of(&frames, "Net.forward")
        };
        let events = trace.events().map(|record| (record.ticket, record.event));
        let first = events
            .filter(|(_, event)| is_allocation(event))
            .find(|(_, event)| is_forward(event));
        assert_eq!(found.starts[0].ticket, first.unwrap().0);
    }
}

fn trace_names(trace: &Trace) -> Box<dyn Names + '_> {
    (trace as &dyn Recording).names()
}

fn calls_of(frames: &[gpushim_recording::Frame], name: &str) -> bool {
    calls(frames).any(|symbol| symbol.function == name)
}

#[test]
fn a_function_inside_a_range_of_another_name() {
    let how = Training {
        python: true,
        ranges: true,
        steps: 8,
        ..Training::default()
    };
    let (_dir, trace) = how.record();
    // Ranges have priority: `forward` is a range, and a function.
    let (by, count) = set(&trace, &name("forward")).unwrap();
    assert_eq!((by, count), (By::Range("forward".to_string()), 8));
    let (by, count) = set(&trace, &name("Net.forward")).unwrap();
    assert_eq!((by, count), (By::Function("Net.forward".to_string()), 8));
}

#[test]
fn sizes_with_and_without_stacks() {
    for stacks in [true, false] {
        let how = Training {
            stacks,
            steps: 9,
            ..Training::default()
        };
        let (_dir, trace) = how.record();
        // A block of the first layer; and a temporary block of each of six layers.
        for (bytes, times) in [(1_200_000, 9), (400_000, 54)] {
            let (by, count) = set(&trace, &Marker::Size(bytes)).unwrap();
            assert_eq!((by, count), (By::Size(bytes), times));
        }
    }
}

#[test]
fn what_is_in_other_memory_tells_as_well() {
    let how = Training {
        python: true,
        steps: 9,
        ..Training::default()
    };
    let (_dir, trace) = how.record();
    let host = Focus {
        layer: Layer::Host,
        device: None,
    };
    for marker in [name("Net.forward"), Marker::Size(1_200_000)] {
        let given = Given::find(&trace, host, &marker).unwrap();
        let found = Iterations::find(&trace, host, Some(&given)).unwrap();
        assert_eq!(found.count(), 9);
    }
}

#[test]
fn what_is_not_there_is_an_error_that_names_what_is() {
    let error = |how: &Training, marker: &Marker| {
        let (_dir, trace) = how.record();
        let error = Given::find(&trace, Focus::of(&trace, None), marker);
        error.unwrap_err().to_string()
    };
    let ranges = Training {
        ranges: true,
        steps: 5,
        ..Training::default()
    };
    let told = error(&ranges, &name("epoch"));
    assert!(
        told.starts_with("find iterations by `epoch` in /"),
        "{told}"
    );
    assert!(told.contains("a.trace: no range has that name"), "{told}");
    assert!(
        told.contains("the ranges `step #` 5 times, `forward` 5 times"),
        "{told}"
    );
    let python = Training {
        python: true,
        steps: 5,
        ..Training::default()
    };
    let told = error(&python, &name("epoch"));
    assert!(
        told.contains("the functions `Net.forward` 60 times"),
        "{told}"
    );
    let told = error(&python, &Marker::Size(77));
    assert!(told.contains("by 77 bytes in /"), "{told}");
    assert!(told.contains("no allocation is of that size"), "{told}");
    assert!(told.contains("the sizes 400000 30 times"), "{told}");
    let once = Training { steps: 1, ..python };
    for marker in [name("Net.forward"), Marker::Size(1_200_000)] {
        let told = error(&once, &marker);
        assert!(told.contains("it comes only once"), "{told}");
    }
}

#[test]
fn calls_that_follow_each_other_are_judged_by_their_stacks() {
    // A function `run` with all work of a loop, and one with the loop itself.
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    let at = |number: u64| 0x7000_0000 + number * 64;
    for (number, name) in (0..).zip(["main", "train_step", "encode", "decode", "forward"]) {
        let name = format!("py::{name}:/home/me/train.py");
        assert!(writer.jit(at(number), 64, writer.intern(&name)));
    }
    let stack = |calls: &[u64]| {
        let frames: Vec<u64> = calls.iter().rev().map(|call| at(*call) + 8).collect();
        writer.stack(0, &frames)
    };
    let round = |calls: [&[u64]; 2], round: u64| {
        let blocks = calls.map(|calls| Event {
            device: 0,
            address: (round * 2 + calls.len() as u64 + calls[calls.len() - 1]) << 20,
            size: 4096,
            stack: stack(calls),
            ..Event::new(Kind::Alloc, Class::Device)
        });
        blocks.iter().for_each(|block| writer.record_alloc(block));
        for block in blocks {
            writer.record_free(&Event {
                kind: Kind::Free,
                stack: 0,
                ..block
            });
        }
    };
    for number in 0..6 {
        round([&[0, 1, 2], &[0, 1, 3]], number);
    }
    let trace = Trace::open(writer.path()).unwrap();
    let called = By::Function("train_step".to_string());
    assert_eq!(set(&trace, &name("train_step")).unwrap(), (called, 6));
    for number in 0..30 {
        round([&[0, 4, 2], &[0, 4, 3]], number);
    }
    let trace = Trace::open(writer.path()).unwrap();
    let focus = Focus::of(&trace, None);
    let given = Given::find(&trace, focus, &name("forward")).unwrap();
    let found = Iterations::find(&trace, focus, Some(&given)).unwrap();
    let certainty = &found.certainty;
    assert!(!certainty.sure && certainty.set, "{certainty:?}");
    let why = "they repeat inside one call of `forward`";
    assert_eq!((found.count(), certainty.why.as_str()), (30, why));
}
