use std::io::{Read, Write};
use std::path::PathBuf;

use flate2::read::GzDecoder;
use proptest::prelude::*;

use super::*;
use crate::Frame;
use crate::blame::blame;
use crate::open::open;

/// Real snapshots, from PyTorch 2.9 and 2.11: the first whole, the others without stacks.
const SAMPLES: [&str; 3] = ["forward", "inference", "training"];

fn path(name: &str) -> PathBuf {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data");
    Path::new(data).join(format!("{name}.pickle.gz"))
}

fn sample(name: &str) -> Vec<u8> {
    let packed = std::fs::read(path(name)).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Returns sums that the snapshot itself has: total, allocated and requested bytes, and allocated
/// blocks.
fn at_end(bytes: &[u8]) -> [u64; 4] {
    let pickle = Pickle::read(bytes).unwrap();
    let mut sums = [0; 4];
    for segment in pickle.items(pickle.get(pickle.root, "segments").unwrap()) {
        let number = |key| pickle.number(pickle.get(*segment, key).unwrap()).unwrap();
        let keys = ["total_size", "allocated_size", "requested_size"];
        for (sum, key) in sums.iter_mut().zip(keys) {
            *sum += number(key);
        }
        let blocks = pickle.items(pickle.get(*segment, "blocks").unwrap());
        let is_live = |block: &&crate::pickle::Value| {
            let state = pickle.get(**block, "state").unwrap();
            pickle.text(state).unwrap() == "active_allocated"
        };
        sums[3] += blocks.iter().filter(is_live).count() as u64;
    }
    sums
}

#[test]
fn the_events_end_where_the_snapshot_ends() {
    for name in SAMPLES {
        let expected = at_end(&sample(name));
        let recording = open(&path(name)).unwrap();
        assert_eq!(recording.problems(), [] as [&str; 0], "{name}");
        let (mut reserved, mut requested, mut said) = (0, 0, [0; 2]);
        let mut blocks = 0;
        for record in recording.events() {
            let event = record.event;
            match event.kind {
                Kind::Reserve => reserved += event.size,
                Kind::Release => reserved -= event.size,
                Kind::TensorAlloc => (requested, blocks) = (requested + event.size, blocks + 1),
                Kind::TensorFree => (requested, blocks) = (requested - event.size, blocks - 1),
                _ => continue,
            }
            if event.class == Class::Tensor {
                said = event.extra;
            }
        }
        assert_eq!([reserved, said[0], requested, blocks], expected, "{name}");
        assert_eq!(said[1], expected[0], "{name}");
        let live = recording.live().unwrap();
        let bytes: u64 = live.iter().map(|block| block.event.size).sum();
        assert_eq!([bytes, live.len() as u64], expected[2..], "{name}");
        let timeline = recording.timeline();
        let spans = timeline.devices[0].get(gpushim_trace::Series::Tensors);
        let last = spans.last().unwrap();
        assert!(last.min <= expected[1] && expected[1] <= last.max, "{name}");
    }
}

#[test]
fn what_the_history_says() {
    let recording = open(&path("forward")).unwrap();
    assert_eq!(recording.format(), "PyTorch memory snapshot");
    assert_eq!(recording.wall_ns() / 1_000_000_000, 1_772_552_894);
    let kinds = |kind| {
        recording
            .events()
            .filter(move |r| r.event.kind == kind)
            .count()
    };
    // 937 in the history, 137 before it.
    assert_eq!(
        (kinds(Kind::TensorAlloc), kinds(Kind::TensorFree)),
        (1074, 937)
    );
    assert_eq!((kinds(Kind::RangeStart), kinds(Kind::RangeEnd)), (1, 1));
    let range = recording
        .events()
        .find(|r| r.event.kind == Kind::RangeStart);
    let name = recording.text(range.unwrap().event.address).unwrap();
    assert_eq!(name, "Optimizer.zero_grad#AdamW.zero_grad");
    let ordered: Vec<_> = recording.events().map(|r| (r.ns, r.ticket)).collect();
    assert!(ordered.is_sorted());
    let mut facts = recording.facts().into_iter();
    let (_, before) = facts.find(|(key, _)| key == "before.0").unwrap();
    assert!(before.starts_with("137 blocks, "), "{before}");
    let caching = recording.caching().unwrap();
    assert_eq!(caching.settings.is_expandable, Some(false));
    let alloc = recording.events().find(|r| r.event.stack != 0).unwrap();
    assert_eq!(recording.stream(&alloc), Some(0));
    let mut names = recording.names();
    let stack = names.stack(alloc.event.stack);
    assert!(stack.len() > 20);
    let Frame::Call(first) = &stack[0] else {
        panic!("{:?}", stack[0])
    };
    assert_eq!(first[0].function, "torch::unwind::unwind()");
    assert_eq!(first[0].kind, crate::symbols::Kind::Native);
    assert_eq!((&first[0].file, first[0].line), (&None, None));
    let blamed = blame(&stack).unwrap();
    assert_eq!(blamed.kind, crate::symbols::Kind::Python);
    assert!(blamed.file.as_ref().unwrap().ends_with(".py"));
    assert!(blamed.line.unwrap() > 0);
    assert_eq!(names.stack(0).len() + names.stack(u32::MAX).len(), 0);
}

#[test]
fn damage_leaves_what_comes_before_it() {
    let bytes = sample("forward");
    let cut = Snapshot::of(Path::new("cut"), &bytes[..bytes.len() / 2]).unwrap();
    let said = cut.problems()[0].clone();
    assert_eq!(
        said,
        format!("it is cut off after {} bytes", bytes.len() / 2)
    );
    assert!(cut.events().count() > 500, "{}", cut.events().count());
    for content in [&b"\x80\x04K\x01."[..], b"\x80\x04}.", b"\x80\x04]K\x01a."] {
        let snapshot = Snapshot::of(Path::new("other"), content);
        assert!(snapshot.is_err() || snapshot.unwrap().events().count() == 0);
    }
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("code.pickle");
    std::fs::write(&place, b"\x80\x04cos\nsystem\n.").unwrap();
    let refused = open(&place).err().unwrap().to_string();
    assert!(
        refused.contains("asks for code to be run (GLOBAL)"),
        "{refused}"
    );
}

/// Returns a pickle of a snapshot from the output of [`entry`] and [`segment`].
fn written(devices: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let traces: Vec<u8> = devices
        .iter()
        .flat_map(|t| [b"](", &t[..], b"e"].concat())
        .collect();
    let mut bytes = b"\x80\x04}(".to_vec();
    bytes.extend(text("device_traces"));
    bytes.extend([b"](", &traces[..], b"e"].concat());
    bytes.extend(text("segments"));
    bytes.extend([b"](", &segments.concat()[..], b"eu."].concat());
    bytes
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = vec![0x8c, text.len() as u8];
    bytes.write_all(text.as_bytes()).unwrap();
    bytes
}

fn int(number: u64) -> Vec<u8> {
    [&[0x8a, 8], &number.to_le_bytes()[..]].concat()
}

fn dict(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let pairs = pairs
        .iter()
        .flat_map(|(key, value)| [text(key), value.clone()].concat());
    [b"}(".to_vec(), pairs.collect(), b"u".to_vec()].concat()
}

fn entry(action: &str, address: u64, size: u64, stream: u64, time: u64) -> Vec<u8> {
    dict(&[
        ("action", text(action)),
        ("addr", int(address)),
        ("size", int(size)),
        ("stream", int(stream)),
        ("time_us", int(time)),
        ("user_metadata", text("phase")),
    ])
}

fn segment(device: u64, address: u64, size: u64, blocks: &[(u64, &str)]) -> Vec<u8> {
    let blocks = blocks
        .iter()
        .flat_map(|(size, state)| dict(&[("size", int(*size)), ("state", text(state))]));
    let blocks = [b"](".to_vec(), blocks.collect(), b"e".to_vec()].concat();
    dict(&[
        ("device", int(device)),
        ("address", int(address)),
        ("total_size", int(size)),
        ("blocks", blocks),
    ])
}

#[test]
fn histories_whose_beginning_is_lost_and_segments_that_grow() {
    const P: u64 = 2 << 20;
    let first = [
        // Allocated before the history; its own allocation is lost.
        entry("free_requested", 0x100_0000, 1000, 7, 50),
        entry("free_completed", 0x100_0000, 1000, 7, 60),
        // Waited for its stream when the history began: freed before.
        entry("free_completed", 0x100_4000, 64, 7, 61),
        entry("segment_map", 0x200_0000, 4 * P, 0, 70),
        entry("alloc", 0x200_0000, 700, 0, 71),
        entry("oom", 0, 1 << 40, 0, 72),
        // Half of the memory that was mapped at once is unmapped.
        entry("segment_unmap", 0x200_0000 + 2 * P, 2 * P, 0, 80),
        entry("unheard_of", 0, 0, 0, 81),
        entry("snapshot", 0, 0, 0, 90),
    ];
    let second = [entry("alloc", 0x100_0000, 5, 0, 65)];
    let segments = [
        segment(
            0,
            0x200_0000,
            2 * P,
            &[(1024, "active_allocated"), (P, "inactive")],
        ),
        segment(
            0,
            0x100_0000,
            P,
            &[(4096, "inactive"), (512, "active_allocated")],
        ),
        segment(
            1,
            0x100_0000,
            P,
            &[(512, "active_allocated"), (512, "active_awaiting_free")],
        ),
    ];
    let bytes = written(&[first.concat(), second.concat()], &segments);
    let snapshot = Snapshot::of(Path::new("x"), &bytes).unwrap();
    let unknown = "entries of kinds that are not known are left out: unheard_of";
    assert_eq!(snapshot.problems(), [unknown]);
    assert_eq!(snapshot.wall_ns(), 50_000);
    let said: Vec<_> = snapshot
        .events()
        .map(|r| {
            (
                r.ns / 1000,
                r.event.kind.name(),
                r.event.device,
                r.event.address,
                r.event.size,
            )
        })
        .collect();
    let expected = [
        (0, "reserve", 0, 0x100_0000, P),
        (0, "tensor-alloc", 0, 0x100_0000, 1000),
        (0, "tensor-alloc", 0, 0x100_1000, 512),
        // The other device's memory was there all the time.
        (0, "reserve", 1, 0x100_0000, P),
        (0, "tensor-free", 0, 0x100_0000, 1000),
        (15, "tensor-alloc", 1, 0x100_0000, 5),
        (20, "reserve", 0, 0x200_0000, 2 * P),
        (20, "reserve", 0, 0x200_0000 + 2 * P, 2 * P),
        (21, "tensor-alloc", 0, 0x200_0000, 700),
        (22, "tensor-out-of-memory", 0, 0, 1 << 40),
        (30, "release", 0, 0x200_0000 + 2 * P, 2 * P),
        (40, "mark", 0, 1, 0),
    ];
    assert_eq!(said, expected);
    let extra: Vec<_> = snapshot.events().map(|r| r.event.extra).collect();
    // 1000 is rounded; the block at 0x200_0000 has its size in the snapshot.
    assert_eq!(extra[2], [1536, P]);
    assert_eq!(extra[4], [512, P]);
    assert_eq!(extra[8], [1536, 5 * P]);
    assert_eq!(extra[9], [1536, 5 * P]);
    let records: Vec<_> = snapshot.events().collect();
    assert_eq!(snapshot.stream(&records[4]), Some(7));
    assert_eq!(snapshot.stream(&records[8]), Some(0));
    assert_eq!(snapshot.stream(&records[0]), None);
    let stack = snapshot.names().stack(records[4].event.stack);
    assert_eq!(&stack[..], [Frame::Range("phase".to_string())]);
}

#[test]
fn histories_that_contradict_themselves_or_the_end() {
    let entries = [
        entry("alloc", 0x1000, 8, 0, 1),
        entry("alloc", 0x1000, 9, 0, 2),
        entry("free_requested", 0x1000, 9, 0, 3),
        entry("free_requested", 0x1000, 9, 0, 4),
        entry("alloc", 0x2000, 1, 0, 5),
        // A time before the last one.
        entry("free_requested", 0x3000, u64::MAX >> 1, 0, 1),
    ];
    let ends = [segment(0, 0x1000, 4096, &[(512, "active_allocated")])];
    let bytes = written(&[entries.concat()], &ends);
    let snapshot = Snapshot::of(Path::new("x"), &bytes).unwrap();
    let problems = snapshot.problems().join("\n");
    assert!(
        problems.contains("1 blocks are live only by the history, 1 only by"),
        "{problems}"
    );
    assert!(
        problems.contains("2 entries of device 0 contradict"),
        "{problems}"
    );
    assert!(snapshot.events().map(|r| r.ns).is_sorted());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn damaged_snapshots_are_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        static SAMPLE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = SAMPLE.get_or_init(|| sample("inference")).clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(snapshot) = Snapshot::of(Path::new("x"), &bytes) {
            let mut names = snapshot.names();
            for record in snapshot.events() {
                names.stack(record.event.stack);
                snapshot.text(record.event.address);
            }
            snapshot.timeline();
            prop_assert!(snapshot.events().map(|r| r.ns).is_sorted());
        }
    }
}
