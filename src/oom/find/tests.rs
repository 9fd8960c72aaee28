use super::*;
use crate::oom::Cause;
use crate::oom::explain::Explanation;
use crate::oom::leak::Leak;
use crate::oom::situation::situations;
use gpushim_trace::{Class, Layer, Trace, Writer, WriterOptions};

fn shortage(free: u64, state: Option<[u64; 3]>) -> (Shortage, Cause, Option<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    let event = |kind, address, size| Event {
        device: 0,
        thread: 5,
        address,
        size,
        ..Event::new(kind, Class::Device)
    };
    for number in 1..=3_u64 {
        writer.record_alloc(&Event {
            stack: writer.stack(0, &[0x1000 * number]),
            ..event(Kind::Alloc, number << 30, number << 20)
        });
    }
    writer.record_free(&event(Kind::Free, 1 << 30, 1 << 20));
    writer.record(&Event {
        extra: [free, 8 << 30],
        ..event(Kind::OutOfMemory, 0, 100 << 20)
    });
    if let Some([allocated, reserved, largest]) = state {
        writer.record(&Event {
            extra: [reserved, largest],
            ..event(Kind::PoolState, 7 << 20, allocated)
        });
    }
    // Later blocks do not count.
    writer.record_alloc(&event(Kind::Alloc, 9 << 30, 1 << 20));
    let trace = Trace::open(writer.path()).unwrap();
    let focus = Focus::of(&trace, None);
    assert_eq!(focus.layer, Layer::Device);
    let mut all = Shortage::all(&trace, focus);
    assert_eq!(all.len(), 1);
    let situation = situations(&trace, &all, &[Leak::default()]).remove(0);
    let cause = Explanation::by_figures(&situation).cause();
    (all.remove(0), cause, situation.others())
}

#[test]
fn who_held_what_and_why_it_did_not_fit() {
    let (one, cause, others) = shortage(10 << 20, Some([5 << 20, 45 << 20, 30 << 20]));
    assert_eq!(
        (one.size, one.live, one.device),
        (100 << 20, 5 << 20, Some(0))
    );
    let held: Vec<_> = one.holders.iter().map(|held| held.bytes).collect();
    assert_eq!(held, [3 << 20, 2 << 20]);
    assert_eq!(one.held.unwrap().waiting, 7 << 20);
    // The recording has no segments: the pool's own figure counts.
    let others = others.unwrap();
    assert_eq!(others, (8 << 30) - (55 << 20));
    assert_eq!(cause, Cause::OtherProcesses { bytes: others });
    let (one, cause, _) = shortage(90 << 20, Some([5 << 20, 45 << 20, 30 << 20]));
    let pieces = Cause::Fragmentation {
        cached: 33 << 20,
        largest: Some(30 << 20),
        of_framework: false,
    };
    assert_eq!(cause, pieces);
    assert_eq!(one.held.unwrap().cached(), 40 << 20);
    let (_, cause, _) = shortage(200 << 20, None);
    assert_eq!(cause, Cause::DriverRefused { free: 200 << 20 });
}

/// Records refused requests, each with the size that the thread got later. Returns the size of the
/// last one that failed.
fn last(requests: &[(u64, Option<u64>)]) -> Option<u64> {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    for (number, (asked, got)) in requests.iter().enumerate() {
        let event = |kind, size| Event {
            device: 0,
            thread: 5,
            address: (1 + number as u64) << 30,
            size,
            ..Event::new(kind, Class::Device)
        };
        writer.record(&event(Kind::OutOfMemory, *asked));
        if let Some(got) = got {
            writer.record_alloc(&event(Kind::Alloc, *got));
        }
    }
    let trace = Trace::open(writer.path()).unwrap();
    let found = Shortage::last(&trace, Focus::of(&trace, None));
    assert!(found.len() <= 1);
    found.first().map(|one| one.size)
}

#[test]
fn the_last_one_that_was_not_met() {
    assert_eq!(last(&[]), None);
    let many: Vec<_> = (1..=40).map(|size| (size << 20, None)).collect();
    assert_eq!(last(&many), Some(40 << 20));
    // A cache releases its memory and asks again, for as much or a little less.
    let again = |got| last(&[(64 << 20, None), (80 << 20, Some(got))]);
    for (got, expected) in [
        (80 << 20, 64),
        (70 << 20, 64),
        (69 << 20, 80),
        (2 << 20, 80),
    ] {
        assert_eq!(again(got), Some(expected << 20), "{got}");
    }
    assert_eq!(last(&[(80 << 20, Some(80 << 20))]), None);
}
