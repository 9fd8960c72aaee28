use super::*;
use gpushim_trace::{Class, Cost, TimelineFollower, Trace, Writer, WriterOptions};

const MIB: u64 = 1 << 20;
const CONTEXT: u64 = 0xc0;

/// A recording in the making.
struct Made {
    dir: tempfile::TempDir,
    writer: Writer,
}

impl Made {
    fn new() -> Made {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions::default();
        let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
        Made { dir, writer }
    }

    fn event(kind: Kind, class: Class, address: u64, size: u64) -> Event {
        Event {
            device: 0,
            address,
            size,
            ..Event::new(kind, class)
        }
    }

    fn segment(&self, class: Class, address: u64, size: u64) {
        self.writer.record(&Event {
            extra: [CONTEXT, 0],
            ..Made::event(Kind::Reserve, class, address, size)
        });
    }

    fn block(&self, class: Class, address: u64, size: u64, function: u64) {
        self.writer.record_alloc(&Event {
            stack: self.writer.stack(0, &[function]),
            extra: [0, Cost::pack(0, size)],
            ..Made::event(Kind::Alloc, class, address, size)
        });
    }

    fn free(&self, class: Class, address: u64, size: u64) {
        let free = Made::event(Kind::Free, class, address, size);
        self.writer.record_free(&free);
    }

    fn at(self, moment: Moment) -> Fragmentation {
        let trace = Trace::open(self.writer.path()).unwrap();
        let focus = Focus::of(&trace, None);
        let found = Fragmentation::at(&trace, focus, moment);
        drop(self.dir);
        found
    }
}

/// Ten segments of 20 MiB, each left with a block of 1 MiB in its middle; then one more is needed.
fn scattered() -> Made {
    let made = Made::new();
    for number in 1..=10_u64 {
        let base = number << 32;
        made.segment(Class::Device, base, 20 * MIB);
        made.block(Class::Device, base, 9 * MIB, 1);
        made.block(Class::Device, base + 9 * MIB, MIB, 2);
        made.block(Class::Device, base + 10 * MIB, 10 * MIB, 1);
    }
    for number in 1..=10_u64 {
        made.free(Class::Device, number << 32, 9 * MIB);
        made.free(Class::Device, (number << 32) + 10 * MIB, 10 * MIB);
    }
    made.segment(Class::Device, 11 << 32, 40 * MIB);
    made.block(Class::Device, 11 << 32, 39 * MIB, 3);
    made
}

#[test]
fn what_pins_nearly_empty_segments() {
    let found = scattered().at(Moment::Peak);
    assert!(found.is_found());
    assert_eq!(found.asked.map(|asked| asked.size), Some(39 * MIB));
    assert_eq!(found.segments.len(), 11);
    let room = Room {
        device: Some(0),
        reserved: 240 * MIB,
        allocated: 49 * MIB,
        requested: 49 * MIB,
        empty: 0,
        stuck: 191 * MIB,
        pinned: 190 * MIB,
        pinned_segments: 10,
        largest_free: 10 * MIB,
        untold: 0,
    };
    assert_eq!(found.devices, [room]);
    assert_eq!(found.pins.len(), 10);
    let pin = &found.pins[0];
    assert_eq!(
        (pin.address, pin.free, pin.blocks, pin.bytes),
        (1 << 32, 19 * MIB, 1, MIB)
    );
    assert_eq!(found.segments[0].parts, [(9 * MIB, MIB)]);
    // It is unchanged once no request needs as much memory, and at the very beginning there is
    // nothing.
    let end = scattered();
    end.free(Class::Device, 11 << 32, 39 * MIB);
    let end = end.at(Moment::End);
    assert_eq!((end.devices[0].empty, end.asked), (40 * MIB, None));
    assert_eq!(end.devices[0].largest_free, 40 * MIB);
    assert!(!scattered().at(Moment::Ns(0)).is_found());
}

#[test]
fn what_is_free_as_a_whole_is_not_stuck() {
    let made = Made::new();
    for number in 1..=10_u64 {
        made.segment(Class::Device, number << 32, 20 * MIB);
        made.block(Class::Device, number << 32, 20 * MIB, 1);
    }
    for number in 2..=10_u64 {
        made.free(Class::Device, number << 32, 20 * MIB);
    }
    let found = made.at(Moment::End);
    assert!(!found.is_found());
    assert_eq!(found.devices[0].empty, 180 * MIB);
    assert_eq!((found.devices[0].stuck, found.pins.len()), (0, 0));
}

#[test]
fn a_context_takes_its_segments_along() {
    let made = scattered();
    made.writer.record(&Event {
        extra: [240 * MIB, 0],
        ..Made::event(Kind::ContextGone, Class::Device, CONTEXT, 49 * MIB)
    });
    let found = made.at(Moment::End);
    assert_eq!((found.devices, found.segments), (vec![], vec![]));
}

/// The recording has handles of pages that are mapped on demand, not their addresses.
#[test]
fn pages_beside_blocks_are_free_to_move() {
    let made = Made::new();
    for handle in 1..=50_u64 {
        made.segment(Class::PoolAsync, handle, 2 * MIB);
    }
    let base = 1 << 40;
    made.block(Class::PoolAsync, base, 3 * MIB, 1);
    made.block(Class::PoolAsync, base + 3 * MIB, 512, 1);
    made.block(Class::PoolAsync, base + 64 * MIB, 512, 2);
    let found = made.at(Moment::End);
    let room = &found.devices[0];
    assert_eq!((room.reserved, room.empty), (100 * MIB, 94 * MIB));
    assert_eq!(room.stuck, 3 * MIB - 2 * 512);
    assert_eq!(room.largest_free, 94 * MIB);
    assert_eq!(found.segments.len(), 2);
    assert!(found.segments[0].pages && !found.is_found());
    assert_eq!(found.segments[0].parts, [(0, 3 * MIB + 512)]);
}

/// Tensors lie in memory that the framework took from the driver; other memory of the driver is not
/// its own.
#[test]
fn segments_below_tensors() {
    let made = Made::new();
    made.block(Class::Device, 1 << 32, 20 * MIB, 1);
    made.block(Class::Device, 2 << 32, 100 * MIB, 2);
    let tensor = |address, size, allocated| Event {
        extra: [allocated, 20 * MIB],
        ..Made::event(Kind::TensorAlloc, Class::Tensor, address, size)
    };
    made.writer.record_alloc(&tensor(1 << 32, 1000, 1024));
    let second = tensor((1 << 32) + 4 * MIB, MIB, MIB + 1024);
    made.writer.record_alloc(&second);
    let found = made.at(Moment::End);
    let room = &found.devices[0];
    assert_eq!(
        (room.reserved, room.allocated, room.requested),
        (20 * MIB, MIB + 1024, MIB + 1000)
    );
    assert_eq!(room.stuck, 19 * MIB - 1024);
    assert_eq!(found.pins[0].blocks, 2);
}

/// A block across several pieces shows that they are one segment.
#[test]
fn pieces_of_an_expandable_segment() {
    let made = Made::new();
    let base = 1 << 32;
    for piece in 0..4 {
        made.segment(Class::Device, base + piece * 2 * MIB, 2 * MIB);
    }
    made.block(Class::Device, base + MIB, 4 * MIB, 1);
    let found = made.at(Moment::End);
    let sizes: Vec<u64> = found.segments.iter().map(|one| one.size).collect();
    assert_eq!(sizes, [6 * MIB, 2 * MIB]);
    assert_eq!(found.segments[0].largest_free, MIB);
    assert_eq!(found.devices[0].reserved, 8 * MIB);
}

/// Two moments have the most reserved memory; the one with most of it in use is found. All memory
/// may be reserved from the first event on.
#[test]
fn memory_that_is_reserved_at_once() {
    let made = Made::new();
    for number in 1..=4_u64 {
        made.segment(Class::Device, number << 32, 100 * MIB);
    }
    for number in 1..=4_u64 {
        made.block(Class::Device, number << 32, 90 * MIB, 1);
    }
    for number in 2..=4_u64 {
        made.free(Class::Device, number << 32, 90 * MIB);
    }
    let found = made.at(Moment::Peak);
    assert_eq!(found.ticket, 8, "after the last allocation");
    assert_eq!(found.devices[0].allocated, 360 * MIB);
    assert_eq!(found.asked, None, "memory did not grow for it");
    assert!(!found.is_found());
}

/// The beginning that a snapshot describes is no moment of the run.
#[test]
fn what_was_there_before_is_no_moment() {
    let made = Made::new();
    let earlier = |kind, address, size| Event {
        flags: flags::EARLIER,
        extra: [0, Cost::pack(0, size)],
        ..Made::event(kind, Class::Device, address, size)
    };
    let segment = earlier(Kind::Reserve, 1 << 32, 100 * MIB);
    made.writer.record(&Event {
        extra: [CONTEXT, 0],
        ..segment
    });
    for number in 0..9_u64 {
        let at = (1 << 32) + number * 10 * MIB;
        made.writer
            .record_alloc(&earlier(Kind::Alloc, at, 10 * MIB));
    }
    let found = made.at(Moment::Peak);
    assert_eq!(found.devices[0].allocated, 90 * MIB);
    assert_eq!((found.devices[0].stuck, found.asked), (10 * MIB, None));
}

/// The places of a wrapped ring's older segments are unknown, but their sum is known.
#[test]
fn segments_of_before_the_ring() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    let mut timeline = TimelineFollower::new(&writer, None);
    let made = Made { dir, writer };
    made.segment(Class::Device, 1 << 32, 100 * MIB);
    made.block(Class::Device, 1 << 32, 60 * MIB, 1);
    for _ in 0..200 {
        timeline.flush_with(&mut |_| {});
        made.block(Class::Device, (1 << 32) + 60 * MIB, MIB, 2);
        made.free(Class::Device, (1 << 32) + 60 * MIB, MIB);
    }
    let trace = Trace::open(made.writer.path()).unwrap();
    let focus = Focus::of(&trace, None);
    let found = Fragmentation::at(&trace, focus, Moment::Peak);
    let room = &found.devices[0];
    assert_eq!(
        (room.reserved, room.allocated, room.untold),
        (100 * MIB, 61 * MIB, 39 * MIB)
    );
    assert!(!found.is_found());
}
