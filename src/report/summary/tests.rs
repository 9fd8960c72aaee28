//! Tests of figures with traces of known content.

use super::*;
use crate::report::summarize;
use gpushim_trace::{Cost, Trace, Writer, WriterOptions};

const MIB: u64 = 1 << 20;

/// Records events into a new trace and returns its figures.
fn summary(bytes: u64, events: &[Event]) -> Summary {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    events.iter().for_each(|event| writer.record(event));
    summarize(&Trace::open(writer.path()).unwrap())
}

fn event(kind: Kind, address: u64, size: u64) -> Event {
    Event {
        device: 0,
        address,
        size,
        ..Event::new(kind, Class::Device)
    }
}

fn alloc(flag: u16, address: u64, size: u64, block: u64) -> Event {
    Event {
        flags: flag,
        extra: [0, Cost::pack(1000, block)],
        ..event(Kind::Alloc, address, size)
    }
}

fn free(address: u64, size: u64, block: u64) -> Event {
    Event {
        extra: [0, Cost::pack(10, block)],
        ..event(Kind::Free, address, size)
    }
}

fn tensor(kind: Kind, address: u64, size: u64, allocated: u64, reserved: u64) -> Event {
    Event {
        class: Class::Tensor,
        extra: [allocated, reserved],
        ..event(kind, address, size)
    }
}

fn context_gone(allocated: u64, reserved: u64) -> Event {
    let event = Event::new(Kind::ContextGone, Class::Device);
    Event {
        address: 0xc0,
        size: allocated,
        extra: [reserved, 0],
        ..event
    }
}

#[test]
fn peaks_ends_and_sources() {
    let summary = summary(
        MIB,
        &[
            event(Kind::Reserve, 1, 2 * MIB),
            alloc(flags::GROWN, 1, MIB, 2 * MIB),
            event(Kind::Reserve, 2, 4 * MIB),
            alloc(flags::GROWN, 2, 3 * MIB, 4 * MIB),
            free(2, 3 * MIB, 4 * MIB),
            alloc(flags::HIT, 2, 2 * MIB, 4 * MIB),
            free(1, MIB, 2 * MIB),
            event(Kind::Release, 1, 2 * MIB),
            alloc(flags::ORDERED | flags::CAPTURE, 3, 0, 0),
        ],
    );
    let [device] = summary.devices.as_slice() else {
        panic!("{:?}", summary.devices)
    };
    assert_eq!(device.device, Some(0));
    assert_eq!(
        (device.requested.peak, device.requested.end),
        (4 * MIB, 2 * MIB)
    );
    assert_eq!(
        (device.allocated.peak, device.allocated.end),
        (6 * MIB, 4 * MIB)
    );
    assert_eq!(
        (device.reserved.peak, device.reserved.end),
        (6 * MIB, 4 * MIB)
    );
    assert_eq!(device.utilization, Some(4.0 / 6.0));
    let groups = |groups: &[SizeGroup]| {
        groups
            .iter()
            .map(|group| (group.size, group.count))
            .collect::<Vec<_>>()
    };
    assert_eq!(groups(&device.top_at_peak), [(3 * MIB, 1), (MIB, 1)]);
    assert_eq!(groups(&device.top_at_end), [(2 * MIB, 1), (0, 1)]);
    let sources = &summary.sources;
    assert_eq!(
        (sources.hit, sources.ordered, sources.grown, sources.total()),
        (1, 1, 2, 4)
    );
    assert_eq!(sources.hit_rate(), Some(0.5));
    assert_eq!(
        (summary.allocation_driver_ns, summary.free_driver_ns),
        (4000, 20)
    );
    let [class] = summary.classes.as_slice() else {
        panic!("{:?}", summary.classes)
    };
    assert_eq!(
        (class.allocations, class.frees, class.bytes, class.live),
        (4, 2, 6 * MIB, 2)
    );
}

#[test]
fn forwarded_memory_is_reserved_and_mappings_are_not_counted() {
    let forward = |class, kind, address| Event {
        class,
        flags: flags::FORWARDED,
        extra: [0, Cost::pack(0, MIB)],
        ..event(kind, address, MIB)
    };
    let summary = summary(
        MIB,
        &[
            forward(Class::Vmm, Kind::Alloc, 1),
            forward(Class::VmmMap, Kind::Alloc, 0x1000),
            forward(Class::Host, Kind::Alloc, 0x2000),
            forward(Class::Managed, Kind::Alloc, 0x3000),
            forward(Class::Pitched, Kind::Alloc, 0x4000),
            forward(Class::Vmm, Kind::Free, 1),
        ],
    );
    let device = &summary.devices[0];
    assert_eq!((device.reserved.peak, device.reserved.end), (2 * MIB, MIB));
    assert_eq!(
        (device.requested.peak, device.requested.end),
        (2 * MIB, MIB)
    );
    assert_eq!(summary.classes.len(), 5);
    assert_eq!(summary.sources.forwarded, 5);
    assert_eq!(summary.sources.hit_rate(), None);
}

#[test]
fn tensors_are_a_layer_of_their_own() {
    let summary = summary(
        MIB,
        &[
            event(Kind::Reserve, 8, 20 * MIB),
            alloc(flags::GROWN, 8, 20 * MIB, 20 * MIB),
            tensor(Kind::TensorAlloc, 8, 5 * MIB, 5 * MIB, 20 * MIB),
            tensor(Kind::TensorAlloc, 9, 6 * MIB, 11 * MIB, 20 * MIB),
            tensor(Kind::TensorFree, 8, 5 * MIB, 6 * MIB, 20 * MIB),
            tensor(Kind::TensorOutOfMemory, 0, 90 * MIB, 6 * MIB, 20 * MIB),
        ],
    );
    let device = &summary.devices[0];
    assert_eq!(
        device.requested.end,
        20 * MIB,
        "a tensor's free does not free its segment"
    );
    let tensors = device.tensors.as_ref().unwrap();
    assert_eq!(
        (tensors.tensors.peak, tensors.tensors.end),
        (11 * MIB, 6 * MIB)
    );
    assert_eq!(
        (tensors.allocated_peak, tensors.reserved_peak),
        (11 * MIB, 20 * MIB)
    );
    assert_eq!(
        (tensors.allocated_end, tensors.reserved_end),
        (6 * MIB, 20 * MIB)
    );
    assert_eq!(tensors.top_at_peak[0].size, 6 * MIB);
    assert_eq!(summary.sources.total(), 1);
    let [oom] = summary.out_of_memory.as_slice() else {
        panic!()
    };
    assert_eq!(
        (oom.by, oom.size, oom.state),
        ("framework", 90 * MIB, [6 * MIB, 20 * MIB])
    );
}

#[test]
fn a_context_takes_its_memory_with_it() {
    let summary = summary(
        MIB,
        &[
            event(Kind::Reserve, 1, 2 * MIB),
            alloc(flags::GROWN, 1, MIB, 2 * MIB),
            alloc(flags::FORWARDED, 2, MIB, MIB),
            context_gone(2 * MIB, 2 * MIB),
            event(Kind::Reserve, 5, MIB),
            alloc(flags::GROWN, 5, MIB, MIB),
        ],
    );
    let device = summary
        .devices
        .iter()
        .find(|device| device.device == Some(0))
        .unwrap();
    assert_eq!(
        (device.requested.peak, device.requested.end),
        (2 * MIB, MIB)
    );
    assert_eq!((device.reserved.peak, device.reserved.end), (3 * MIB, MIB));
    assert_eq!(
        device.top_at_end,
        [SizeGroup {
            size: MIB,
            count: 1,
            bytes: MIB
        }]
    );
    assert_eq!((summary.contexts_gone, summary.ambiguous_bytes), (1, 0));
}

#[test]
fn events_that_name_no_device_are_of_the_only_one() {
    let nowhere = |kind, address| Event {
        address,
        size: MIB,
        ..Event::new(kind, Class::Device)
    };
    let mut events = vec![nowhere(Kind::Reserve, 1), alloc(flags::GROWN, 1, MIB, MIB)];
    let one = summary(MIB, &events);
    assert_eq!((one.devices.len(), one.devices[0].reserved.peak), (1, MIB));
    assert_eq!(one.devices[0].utilization, Some(1.0));
    events.push(Event {
        device: 1,
        ..alloc(flags::GROWN, 2, MIB, MIB)
    });
    events.push(context_gone(MIB, MIB));
    let two = summary(MIB, &events);
    let reserved: Vec<_> = two
        .devices
        .iter()
        .map(|device| (device.device, device.reserved.peak))
        .collect();
    assert_eq!(reserved, [(Some(0), 0), (Some(1), 0), (None, MIB)]);
    assert_eq!(two.ambiguous_bytes, MIB);
}

#[test]
fn one_of_two_contexts_is_taken_from_the_sums() {
    let summary = summary(
        MIB,
        &[
            alloc(flags::HIT, 1, MIB, MIB),
            alloc(flags::HIT, 2, 3 * MIB, 3 * MIB),
            context_gone(MIB, MIB),
            free(2, 3 * MIB, 3 * MIB),
        ],
    );
    let device = summary
        .devices
        .iter()
        .find(|device| device.device == Some(0))
        .unwrap();
    assert_eq!((device.requested.peak, device.requested.end), (4 * MIB, 0));
    assert_eq!(summary.ambiguous_bytes, MIB);
}

/// A program keeps 16 MiB all the time and frees it at the end, while the ring holds only the last
/// 64 events.
#[test]
fn what_was_live_before_the_window_is_inferred_from_its_frees() {
    let mut events: Vec<_> = (0..16)
        .map(|at| alloc(flags::GROWN, at, MIB, MIB))
        .collect();
    for round in 0..100 {
        events.push(alloc(flags::HIT, 1000 + round, MIB, MIB));
        events.push(free(1000 + round, MIB, MIB));
    }
    events.extend((0..16).map(|at| free(at, MIB, MIB)));
    let summary = summary(4096, &events);
    assert!(summary.events.wrapped);
    assert_eq!((summary.events.recorded, summary.events.lost), (232, 168));
    let device = &summary.devices[0];
    assert_eq!((device.requested.peak, device.requested.end), (17 * MIB, 0));
    // No segment event is in the window, but allocated memory is always reserved.
    assert_eq!((device.reserved.peak, device.utilization), (17 * MIB, None));
}

#[test]
fn devices_are_told_apart_and_failures_do_not_count() {
    let summary = summary(
        MIB,
        &[
            alloc(flags::HIT, 1, MIB, MIB),
            Event {
                device: 3,
                ..alloc(flags::HIT, 2, 2 * MIB, 2 * MIB)
            },
            Event {
                result: 2,
                ..alloc(flags::FORWARDED, 3, 9 * MIB, 9 * MIB)
            },
            Event {
                extra: [MIB, 8 * MIB],
                ..event(Kind::OutOfMemory, 0, 9 * MIB)
            },
        ],
    );
    let peaks: Vec<_> = summary
        .devices
        .iter()
        .map(|device| (device.device, device.requested.peak))
        .collect();
    assert_eq!(peaks, [(Some(0), MIB), (Some(3), 2 * MIB)]);
    assert_eq!(
        (
            summary.failed,
            summary.out_of_memory_count,
            summary.sources.total()
        ),
        (1, 1, 2)
    );
    assert_eq!(summary.out_of_memory[0].state, [MIB, 8 * MIB]);
}

#[test]
fn an_address_handed_out_again_without_a_free_is_counted_once() {
    let summary = summary(
        MIB,
        &[
            alloc(flags::HIT, 1, 2 * MIB, 2 * MIB),
            alloc(flags::HIT, 1, MIB, MIB),
        ],
    );
    let device = &summary.devices[0];
    assert_eq!(
        (device.requested.peak, device.requested.end),
        (2 * MIB, MIB)
    );
}

#[test]
fn no_events_no_figures() {
    let summary = summary(MIB, &[]);
    assert!(summary.devices.is_empty() && summary.classes.is_empty());
    assert_eq!((summary.first_ns, summary.last_ns), (0, 0));
}

#[test]
fn where_the_live_table_lacks_blocks_the_sums_say_what_is_live_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 64 << 10,
        live_blocks: Some(0),
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    // More than the ring and the table have room for, all of it live.
    for number in 1..=4096 {
        writer.record_alloc(&alloc(flags::FORWARDED, number << 21, MIB, 2 * MIB));
    }
    for number in 4000..=4096 {
        writer.record_free(&free(number << 21, MIB, 2 * MIB));
    }
    let trace = Trace::open(writer.path()).unwrap();
    assert!(trace.live().unwrap().missed > 0 && trace.has_wrapped());
    let summary = summarize(&trace);
    let device = &summary.devices[0];
    assert_eq!(device.requested.end, 3999 * MIB);
    assert_eq!(device.requested.peak, 4096 * MIB);
    assert!(device.allocated.end >= 3999 * MIB);
    assert!(device.reserved.end >= device.allocated.end);
}
