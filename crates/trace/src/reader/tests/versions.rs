//! Files of every version so far, each as its own gpushim wrote it, and of versions to come.

use super::*;
use crate::{Layer, Series, Span, StackNode, flags};

/// Returns the numbers of events of the file of a version: recorded, readable, lost, torn.
fn counts(trace: &Trace) -> [u64; 4] {
    [
        trace.recorded(),
        trace.readable(),
        trace.lost(),
        trace.torn(),
    ]
}

fn sound_file(version: &str) -> Trace {
    let trace = parse(&data::file(version)).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    let header = trace.header();
    assert_eq!(format!("{}.{}", header.major, header.minor), version);
    assert_eq!(trace.fact("argv").as_deref(), Some("python train.py"));
    trace
}

/// Address at which the modules of the file of version 1.0 begin.
const BEGIN: u64 = 0x5500_0000_0000;

/// Returns the allocation of a block of the file of version 1.0, without its stack. The block has a
/// number from 0 to 49.
fn block(number: u64) -> Event {
    let (kind, class, extra) = match number / 2 % 2 {
        0 => (Kind::Alloc, Class::Device, [0, number + 1]),
        _ => (
            Kind::TensorAlloc,
            Class::Tensor,
            [4096, 8192].map(|bytes| bytes * number),
        ),
    };
    Event {
        flags: flags::HIT,
        thread: 11,
        device: 0,
        address: 0x1000 * (number + 1),
        size: 512 * (number + 1),
        extra,
        ..Event::new(kind, class)
    }
}

/// All that a file of version 1.0 tells, but for the kinds of its events.
fn tells_all(trace: &Trace) {
    assert_eq!(counts(trace), [81, 64, 17, 0]);

    let live = trace.live().unwrap();
    assert!(live.is_complete());
    let (last, blocks) = live.blocks.split_last().unwrap();
    assert_eq!(
        (last.event.class, last.event.size),
        (Class::Managed, 1 << 30)
    );
    for (seen, number) in blocks.iter().zip((0..50).step_by(2)) {
        let stack = seen.event.stack;
        assert_eq!(
            seen.event,
            Event {
                stack,
                ..block(number)
            }
        );
        assert_eq!(stacked(trace, stack), expected_stack(number));
    }
    assert_eq!(blocks.len(), 25);

    let totals = trace.totals().unwrap();
    let of = |layer| {
        let sums = totals.device(layer, 0);
        assert_eq!(sums, totals.layer(layer));
        [sums.allocations, sums.allocated, sums.frees, sums.freed]
    };
    // Blocks 0, 1, 4, 5 to 48, 49, of which 1, 5 to 49 were freed; the others; the one of a GiB.
    let sum = |numbers: &mut dyn Iterator<Item = u64>| {
        numbers.fold([0, 0], |[count, bytes], number| {
            [count + 1, bytes + 512 * (number + 1)]
        })
    };
    let sums = |rest: u64| {
        let [count, bytes] = sum(&mut (0..50).filter(|number| number / 2 % 2 == rest));
        let [frees, freed] = sum(&mut (0..50).filter(|n| n / 2 % 2 == rest && n % 2 == 1));
        [count, bytes, frees, freed]
    };
    assert_eq!(of(Layer::Device), sums(0));
    assert_eq!(of(Layer::Tensor), sums(1));
    assert_eq!(of(Layer::Managed), [1, 1 << 30, 0, 0]);
    assert_eq!(of(Layer::Host), [0; 4]);

    let module = trace.modules()[1];
    assert_eq!(trace.modules().len(), 2);
    assert_eq!(trace.string(module.path).unwrap(), "/usr/lib/libtorch.so");
    assert_eq!(
        [module.begin, module.end, module.bias],
        [0x1_0000, 0x2_0000, 0x1_0000].map(|at| BEGIN + at)
    );
    assert_eq!(
        (module.generation, module.build_id.as_bytes()),
        (1, &[2; 20][..])
    );
    assert_eq!(
        trace.jit_name(BEGIN + 0x10_003f).unwrap(),
        "py::forward:/src/model.py"
    );
    assert_eq!(trace.jit_name(BEGIN + 0x10_0040), None);
    assert_eq!(trace.cut(), Cut::default());
}

fn stacked(trace: &Trace, id: u32) -> Vec<String> {
    let text = |id| trace.string(id).unwrap();
    let shown = |node| match node {
        StackNode::Frame(address) => format!("{:#x}", address - BEGIN),
        StackNode::Range { name, domain } => format!("{} of {}", text(name), text(domain)),
        StackNode::Site(site) => unreachable!("version 1.0 had no site {site}"),
    };
    trace.stack(id).map(shown).collect()
}

fn expected_stack(number: u64) -> Vec<String> {
    let second = format!("{:#x}", 0x1_0020 + number % 2);
    ["0x100010", &second, "0x40", "step 1 of torch"]
        .map(str::to_string)
        .into()
}

#[test]
fn version_1_0() {
    let trace = sound_file("1.0");
    tells_all(&trace);
    let events: Vec<_> = trace.events().map(|record| record.event).collect();
    assert_eq!(
        events[57],
        Event {
            stack: events[57].stack,
            ..block(49)
        }
    );
    assert_eq!(stacked(&trace, events[57].stack), expected_stack(49));
    assert_eq!(events[58].kind, Kind::Free);
    let last: Vec<_> = events[events.len() - 5..]
        .iter()
        .map(|event| event.kind)
        .collect();
    let expected = [
        Kind::DeviceMemory,
        Kind::PoolState,
        Kind::Mark,
        Kind::RangePop,
        Kind::Alloc,
    ];
    assert_eq!(last, expected);
    assert_eq!(trace.string(events[61].address as u32).unwrap(), "half way");

    // From the first event on, although the ring has lost 17.
    let timeline = trace.timeline();
    assert!(timeline.is_complete && timeline.devices.len() == 1);
    let device = &timeline.devices[0];
    let most = |series| device.get(series).iter().map(|span: &Span| span.max).max();
    let least = |series| device.get(series).iter().map(|span: &Span| span.min).min();
    assert_eq!(least(Series::Requested), Some(0));
    assert_eq!(most(Series::Tensors), Some(4096 * 47));
    assert_eq!(most(Series::TensorsReserved), Some(8192 * 47));
    assert_eq!(most(Series::Driver), Some(3 << 30));
}

/// A file as a later minor version might write it: records twice as long with their fields
/// elsewhere and one more, longer nodes of stacks, an unknown part, unknown kinds and classes of
/// events.
fn version_1_9() -> Vec<u8> {
    let old = data::file("1.0");
    let (ring_at, stacks_at) = (ring_at(&old), part_at(&old, layout::PartKind::Stacks));
    let mut new = old[..ring_at].to_vec();
    layout::put(&mut new, header::MINOR, &9_u32.to_le_bytes());
    let mut describe = |kind, field: usize, value: u64| {
        layout::put(&mut new, entry_of(&old, kind) + field, &value.to_le_bytes());
    };
    describe(layout::PartKind::Ring, part::STRIDE, 128);
    describe(layout::PartKind::Ring, part::LENGTH, SLOTS as u64 * 128);
    // Behind the ring.
    let stacks_moved = ring_at + SLOTS * 128;
    describe(layout::PartKind::Stacks, part::STRIDE, 24);
    describe(layout::PartKind::Stacks, part::OFFSET, stacks_moved as u64);
    describe(layout::PartKind::Stacks, part::LENGTH, 256 * 24);
    let parts = layout::get_u32(&old, header::PARTS_COUNT).unwrap();
    let extra_part = header::PARTS_AT + parts as usize * part::BYTES;
    layout::put(&mut new, extra_part + part::KIND, &77_u32.to_le_bytes());
    layout::put(&mut new, extra_part + part::STRIDE, &1_u64.to_le_bytes());
    layout::put(&mut new, header::PARTS_COUNT, &(parts + 1).to_le_bytes());
    // Address moves to the second half; a field that no reader knows is added.
    let address = header::FIELDS_AT + 9 * field::BYTES;
    layout::put(&mut new, address + field::OFFSET, &96_u16.to_le_bytes());
    let fields = layout::get_u32(&old, header::FIELDS_COUNT).unwrap();
    let added = header::FIELDS_AT + fields as usize * field::BYTES;
    layout::put(&mut new, added, b"colour");
    layout::put(&mut new, added + field::WIDTH, &8_u16.to_le_bytes());
    layout::put(&mut new, header::FIELDS_COUNT, &(fields + 1).to_le_bytes());
    for slot in old[ring_at..].chunks(64) {
        let mut record = [0xaa; 128];
        record[..64].copy_from_slice(slot);
        record[96..104].copy_from_slice(&slot[32..40]);
        record[32..40].fill(0xaa);
        // Of every other event the kind and the class are unknown.
        if slot[0] & 2 == 0 {
            record[16..18].copy_from_slice(&[200, 99]);
        }
        new.extend(record);
    }
    for (index, node) in old[stacks_at..][..256 * 16].chunks(16).enumerate() {
        new.extend(node);
        // Where older readers find the counts there is nothing else.
        new.extend(if index == 0 { [0; 8] } else { [0xbb; 8] });
    }
    let bytes = (new.len() as u64).to_le_bytes();
    layout::put(&mut new, header::FILE_BYTES, &bytes);
    let sum = layout::checksum(&new[..layout::HEADER_BYTES]);
    layout::put(&mut new, header::CHECKSUM, &sum.to_le_bytes());
    new
}

#[test]
fn a_later_minor_version() {
    let trace = exhaust(&version_1_9()).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    tells_all(&trace);
    let known: Vec<_> = sound_file("1.0").events().collect();
    let mut unknown = 0;
    for (new, old) in trace.events().zip(known) {
        let changed = new.event.kind == Kind::Unknown;
        unknown += u64::from(changed);
        let expected = if changed {
            Event {
                kind: Kind::Unknown,
                class: Class::Unknown,
                ..old.event
            }
        } else {
            old.event
        };
        assert_eq!(
            (new.ns, new.ticket, new.event),
            (old.ns, old.ticket, expected)
        );
    }
    assert!((10..60).contains(&unknown), "{unknown}");
}

#[test]
fn a_later_major_version_is_refused() {
    let mut file = version_1_9();
    layout::put(&mut file, header::MAJOR, &2_u32.to_le_bytes());
    layout::put(&mut file, header::MINOR, &0_u32.to_le_bytes());
    let sum = layout::checksum(&file[..layout::HEADER_BYTES]);
    layout::put(&mut file, header::CHECKSUM, &sum.to_le_bytes());
    assert_eq!(
        parse(&file).unwrap_err().to_string(),
        "read the trace x.trace: it has format version 2.0, and this gpushim reads version 1; use the gpushim \
         that wrote it"
    );
}
