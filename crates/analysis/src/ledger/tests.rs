//! The rows of the table in the module's page, one by one.

use super::*;
use gpushim_trace::{Class, Cost, Event, Kind, Layer, LiveBlock, Record, flags};

const KIB: u64 = 1024;

fn event(kind: Kind, address: u64, size: u64) -> Event {
    Event {
        device: 0,
        address,
        size,
        ..Event::new(kind, Class::Device)
    }
}

/// Returns the event of a block of a pool or the driver, with one KiB more than requested.
fn block(kind: Kind, address: u64, size: u64, flags: u16) -> Event {
    Event {
        flags,
        extra: [0, Cost::pack(0, size + KIB)],
        ..event(kind, address, size)
    }
}

fn segment(address: u64, size: u64, context: u64) -> Event {
    Event {
        extra: [context, 0],
        ..event(Kind::Reserve, address, size)
    }
}

fn gone(context: u64, allocated: u64, reserved: u64) -> Event {
    Event {
        extra: [reserved, 0],
        ..event(Kind::ContextGone, context, allocated)
    }
}

fn record(event: Event) -> Record {
    Record {
        ticket: 1,
        ns: 1,
        event,
    }
}

/// Returns the changes of the last of some events.
fn last(ledger: &mut Ledger, events: &[Event]) -> Vec<Change> {
    let mut changes = Vec::new();
    for event in events {
        changes.clear();
        ledger.apply(&record(*event), &mut |change| changes.push(*change));
    }
    changes
}

/// Returns the addresses of the blocks that end with the last of some events.
fn freed(events: &[Event]) -> Vec<u64> {
    let changes = last(&mut Ledger::new(None), events);
    let freed = changes.iter().filter_map(|change| match change {
        Change::Freed(block) => Some(block.address),
        _ => None,
    });
    freed.collect()
}

#[test]
fn what_fails_changes_nothing() {
    for kind in [Kind::Alloc, Kind::Free, Kind::Reserve, Kind::Release] {
        let failed = Event {
            result: 2,
            ..block(kind, 1, KIB, flags::FORWARDED)
        };
        assert_eq!(last(&mut Ledger::new(None), &[failed]), []);
    }
}

#[test]
fn an_address_that_comes_twice_was_freed_in_between() {
    let twice = [
        block(Kind::Alloc, 8, KIB, 0),
        block(Kind::Alloc, 8, 2 * KIB, 0),
    ];
    assert_eq!(freed(&twice), [8]);
    // The same holds for a focus on the first device only.
    let mut ledger = Ledger::of(Focus {
        layer: Layer::Device,
        device: Some(0),
    });
    let elsewhere = Event {
        device: 1,
        ..twice[1]
    };
    let changes = last(&mut ledger, &[twice[0], elsewhere]);
    assert!(matches!(changes[..], [Change::Freed(block)] if block.device == 0));
    assert!(ledger.live(Layer::Device).is_empty());
    let again = [segment(8, KIB, 0), segment(8, 4 * KIB, 0)];
    let changes = last(&mut Ledger::new(None), &again);
    assert!(
        matches!(changes[..], [Change::Released(a), Change::Reserved(b)] if (a.size, b.size) == (KIB, 4 * KIB))
    );
}

#[test]
fn what_is_not_known_was_there_before() {
    let free = last(
        &mut Ledger::new(None),
        &[block(Kind::Free, 8, KIB, flags::FORWARDED)],
    );
    let mut steps = Vec::new();
    free[0].steps(|device, sum, step, bytes| steps.push((device, sum, step, bytes)));
    assert_eq!(
        steps,
        [
            (0, Sum::Live(Layer::Device), Step::FallUnseen, KIB),
            (0, Sum::Allocated, Step::FallUnseen, 2 * KIB),
            (0, Sum::Reserved, Step::FallUnseen, 2 * KIB),
        ]
    );
    let release = last(&mut Ledger::new(None), &[event(Kind::Release, 8, KIB)]);
    assert!(matches!(release[..], [Change::ReleasedUnseen(one)] if one.size == KIB));
    let mut ledger = Ledger::new(None);
    let older = LiveBlock {
        ns: 0,
        event: block(Kind::Alloc, 8, KIB, 0),
    };
    let mut changes = Vec::new();
    ledger.begin(&[older], &mut |change| changes.push(*change));
    assert!(matches!(changes[..], [Change::WasThere(_)]));
    let changes = last(&mut ledger, &[block(Kind::Free, 8, KIB, 0)]);
    assert!(matches!(changes[..], [Change::Freed(_)]));
}

#[test]
fn each_layer_has_its_own_sums() {
    for (class, expected) in [
        (Class::Tensor, vec![Sum::Live(Layer::Tensor)]),
        (Class::Host, vec![Sum::Live(Layer::Host)]),
        (Class::Managed, vec![Sum::Live(Layer::Managed)]),
        (Class::VmmMap, vec![Sum::Live(Layer::Mapping)]),
        (
            Class::PoolAsync,
            vec![Sum::Live(Layer::Device), Sum::Allocated, Sum::Reserved],
        ),
    ] {
        let made = Event {
            class,
            ..block(Kind::Alloc, 8, KIB, flags::FORWARDED)
        };
        let mut sums = Vec::new();
        for change in last(&mut Ledger::new(None), &[made]) {
            change.steps(|_, sum, _, _| sums.push(sum));
        }
        assert_eq!(sums, expected, "{class:?}");
    }
}

#[test]
fn a_context_takes_what_lies_in_its_segments() {
    let two = [
        segment(0x1000, 0x1000, 0xa),
        segment(0x8000, 0x1000, 0xb),
        block(Kind::Alloc, 0x1000, KIB, 0),
        block(Kind::Alloc, 0x1800, KIB, 0),
        block(Kind::Alloc, 0x8000, KIB, 0),
        // It may belong to either context.
        block(Kind::Alloc, 0x9_0000, KIB, flags::FORWARDED),
    ];
    let with = |last: Event| [&two[..], &[last]].concat();
    assert_eq!(freed(&with(gone(0xa, 4 * KIB, 0x1000))), [0x1000, 0x1800]);
    assert_eq!(freed(&with(gone(0xb, 2 * KIB, 0x1000))), [0x8000]);
    // The last context takes that, too.
    let first_gone = with(gone(0xa, 4 * KIB, 0x1000));
    let both = [&first_gone[..], &[gone(0xb, 2 * KIB, 0x1000)]].concat();
    assert_eq!(freed(&both), [0x8000, 0x9_0000]);
    // A context that had no block of a pool does not show it.
    assert_eq!(freed(&with(gone(0xc, 0, 0))), [] as [u64; 0]);
}

#[test]
fn stream_ordered_memory_outlives_contexts() {
    let ordered = Event {
        class: Class::PoolAsync,
        ..block(Kind::Alloc, 0x9000, KIB, 0)
    };
    let all = [block(Kind::Alloc, 0x1000, KIB, 0), ordered];
    assert_eq!(
        freed(&[&all[..], &[gone(0xa, 2 * KIB, 0)]].concat()),
        [0x1000]
    );
    assert_eq!(
        freed(&[&all[..], &[gone(0xa, 4 * KIB, 0)]].concat()),
        [0x1000, 0x9000]
    );
}

#[test]
fn what_cannot_be_told_is_taken_from_the_sums() {
    let all = [
        block(Kind::Alloc, 0x1000, KIB, 0),
        block(Kind::Alloc, 0x9000, 3 * KIB, 0),
        gone(0xa, 3 * KIB, 0),
    ];
    let changes = last(&mut Ledger::new(None), &all);
    // 4 KiB of the allocated 6 KiB were requested.
    assert_eq!(
        changes,
        [Change::Ambiguous {
            device: 0,
            requested: 2 * KIB,
            allocated: 3 * KIB
        }]
    );
    let nowhere = Event {
        device: Event::NO_DEVICE,
        ..all[2]
    };
    let changes = last(&mut Ledger::new(None), &[all[0], all[1], nowhere]);
    let mut sums = 0;
    changes[0].steps(|_, _, _, _| sums += 1);
    assert_eq!((changes.len(), sums), (1, 0));
}

#[test]
fn segments_from_before_the_recording_go_with_a_context() {
    let changes = last(
        &mut Ledger::new(None),
        &[segment(0x1000, KIB, 0xa), gone(0xa, 0, 3 * KIB)],
    );
    assert!(
        matches!(changes[..], [Change::Released(a), Change::ReleasedUnseen(b)] if (a.size, b.size) == (KIB, 2 * KIB))
    );
}

#[test]
fn an_event_without_a_device_is_of_the_only_one() {
    let nowhere = Event {
        device: Event::NO_DEVICE,
        ..block(Kind::Alloc, 8, KIB, 0)
    };
    let mut ledger = Ledger::new(None);
    last(&mut ledger, &[nowhere, block(Kind::Alloc, 16, KIB, 0)]);
    assert_eq!(ledger.other_only(), Some(Some(0)));
    let mut ledger = Ledger::new(Some(0));
    let changes = last(&mut ledger, &[block(Kind::Alloc, 16, KIB, 0), nowhere]);
    assert_eq!(changes[0].device(), 0);
    assert_eq!(ledger.other_only(), None);
    let other = Event {
        device: 1,
        ..block(Kind::Alloc, 32, KIB, 0)
    };
    last(&mut ledger, &[other]);
    assert_eq!(ledger.other_only(), Some(None));
}

#[test]
fn without_the_fact_no_owner_is_read() {
    let (_folder, trace) = super::sample::Training::default().record();
    assert!(gpushim_recording::Owners::of(&trace).is_empty());
}
