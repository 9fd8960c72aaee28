//! Timelines of rings that were overwritten before they were read.

use super::*;
use crate::{Class, Cost, Event, Kind, Series, Trace, WriterOptions, flags};

const HELD: u64 = 64 << 20;
const BLOCK: u64 = 8192;

fn create(path: &std::path::Path) -> Writer {
    // 1,024 events.
    let options = WriterOptions {
        bytes: 64 << 10,
        ..WriterOptions::default()
    };
    Writer::create(path, &options).unwrap()
}

fn block(number: u64, forwarded: bool) -> Event {
    Event {
        device: 1,
        flags: if forwarded { flags::FORWARDED } else { 0 },
        address: number << 12,
        size: 100 + number,
        extra: [0, Cost::pack(0, BLOCK)],
        ..Event::new(Kind::Alloc, Class::Device)
    }
}

/// Records so much that the ring is lapped, and keeps every hundredth block: what was asked for.
fn storm(writer: &Writer) -> u64 {
    let mut live = 0;
    for number in 1..=5000 {
        let event = block(number, number % 200 == 0);
        writer.record_alloc(&event);
        if number % 100 == 0 {
            live += event.size;
        } else {
            writer.record_free(&Event {
                kind: Kind::Free,
                ..event
            });
        }
    }
    live
}

/// Requested, allocated and reserved of device 1 in the last stretch of time: least and most.
fn last(writer: &Writer) -> [(u64, u64); 3] {
    let timeline = Trace::open(writer.path()).unwrap().timeline();
    let device = timeline.devices.iter().find(|one| one.device == 1);
    [Series::Requested, Series::Allocated, Series::Reserved].map(|series| {
        let last = device.and_then(|device| device.get(series).last());
        last.map_or((0, 0), |span| (span.min, span.max))
    })
}

/// Lets the stretch of time pass in which the sums were wrong, and has an event begin another.
fn later(writer: &Writer, follower: &mut TimelineFollower) {
    std::thread::sleep(std::time::Duration::from_millis(5));
    writer.record(&Event {
        size: 0,
        ..block(0, false)
    });
    follower.flush_with(&mut |_| {});
}

#[test]
fn after_missed_events_the_sums_are_the_true_ones_again() {
    let dir = tempfile::tempdir().unwrap();
    for by_poll in [false, true] {
        let writer = create(&dir.path().join("a.trace"));
        let held = |device| Some(if device == 1 { HELD } else { 0 });
        let mut follower = TimelineFollower::new(&writer, Some(Box::new(held)));
        let live = storm(&writer);
        if by_poll {
            follower.poll();
        }
        follower.flush_with(&mut |_| {});
        assert!(follower.missed().total() > 0);
        later(&writer, &mut follower);
        let truth = [live, 50 * BLOCK, HELD + 25 * BLOCK];
        // The event that began the stretch has a block of its own.
        assert_eq!(last(&writer)[0], (live, live));
        assert_eq!(last(&writer)[1], (truth[1], truth[1] + BLOCK));
        assert_eq!(last(&writer)[2], (truth[2], truth[2]));
        assert!(Trace::open(writer.path()).unwrap().timeline().gaps > 0);
    }
}

#[test]
fn what_pools_hold_is_asked_again_until_it_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir.path().join("a.trace"));
    let mut asked = 0;
    let held = move |device| {
        asked += u64::from(device == 1);
        (asked > 1).then_some(if device == 1 { HELD } else { 0 })
    };
    let mut follower = TimelineFollower::new(&writer, Some(Box::new(held)));
    let live = storm(&writer);
    follower.flush_with(&mut |_| {});
    later(&writer, &mut follower);
    later(&writer, &mut follower);
    assert_eq!(last(&writer)[0], (live, live));
    assert_eq!(last(&writer)[2].1, HELD + 25 * BLOCK);
}

#[test]
fn without_anybody_who_knows_the_sums_stay_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir.path().join("a.trace"));
    let mut follower = TimelineFollower::new(&writer, None);
    let live = storm(&writer);
    follower.flush_with(&mut |_| {});
    later(&writer, &mut follower);
    assert_ne!(last(&writer)[0], (live, live));
}
