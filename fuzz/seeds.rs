//! Trace files to begin with, sound and damaged: shared by `examples/corpus.rs` and `tests/damage.rs`.
//!
//! A writer's file has a quarter of a MiB of mostly zeros; here each part is cut to what it holds, so
//! that a change of a few bytes changes something.

use std::ops::Range;

use gpushim_core::trace::layout::{self, PartKind, get_u32, get_u64, header, part};
use gpushim_core::trace::{Class, Event, Kind, Writer, WriterOptions};

/// Sound files: of every version, and of rings in several states.
pub fn sound() -> Vec<(&'static str, Vec<u8>)> {
    let new = written(4096, 100);
    let mut older = new.clone();
    put(&mut older, header::MINOR, &0_u32.to_le_bytes());
    resum(&mut older);
    [
        ("1.0", version_1()),
        ("2.0", older),
        ("wrapped", new),
        ("empty", written(4096, 0)),
        ("begun", written(4096, 30)),
        ("chunks", written(32 << 10, 700)),
    ]
    .map(|(name, content)| (name, compact(&content)))
    .into()
}

/// Files damaged in the ways in which files are.
pub fn damaged() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (name, whole) in sound()
        .into_iter()
        .filter(|(name, _)| ["1.0", "wrapped"].contains(name))
    {
        let ring = part_of(&whole, PartKind::Ring).unwrap();
        let mut add = |what: &str, content: Vec<u8>| all.push((format!("{name}-{what}"), content));
        add("cut-in-ring", whole[..ring.start + ring.len() / 3].to_vec());
        add("cut-in-header", whole[..900].to_vec());
        let mut changed = whole.clone();
        changed[ring.start..ring.start + ring.len() / 2].fill(0);
        add("zeroed-ring", changed);
        let mut changed = whole.clone();
        changed[header::CHANGING_FROM..header::CHANGING_TO].fill(0);
        add("no-clock", changed);
        let mut changed = whole.clone();
        for at in ring.step_by(layout::RECORD_BYTES * 5) {
            // As if it was being written.
            changed[at] |= 1;
        }
        add("torn", changed);
        let mut changed = whole.clone();
        let directory = get_u32(&whole, header::PARTS_OFFSET).unwrap() as usize;
        changed[directory + part::LENGTH] ^= 0x80;
        changed[directory + part::BYTES + part::STRIDE + 7] ^= 0x40;
        add("flipped-directory", changed);
    }
    all
}

/// The parts of a file, as its directory has them, so far as they lie within it.
pub fn parts(content: &[u8]) -> Vec<(u32, Range<usize>)> {
    let (Some(at), Some(count)) = (
        get_u32(content, header::PARTS_OFFSET),
        get_u32(content, header::PARTS_COUNT),
    ) else {
        return Vec::new();
    };
    let entry = |index: usize| {
        let at = at as usize + index * part::BYTES;
        let begin = usize::try_from(get_u64(content, at + part::OFFSET)?).ok()?;
        let length = usize::try_from(get_u64(content, at + part::LENGTH)?).ok()?;
        let end = begin.checked_add(length)?;
        (end <= content.len()).then_some((get_u32(content, at + part::KIND)?, begin..end))
    };
    (0..count.min(64) as usize).filter_map(entry).collect()
}

fn part_of(content: &[u8], kind: PartKind) -> Option<Range<usize>> {
    let found = parts(content)
        .into_iter()
        .find(|(number, _)| *number == kind as u32);
    found.map(|(_, range)| range)
}

/// A file of this many bytes of ring, with events of every kind by two threads, as this version writes it.
fn written(bytes: u64, events: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes,
        rank: Some(3),
        counters: &["hits", "misses"],
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    writer.fact("gpu.0", "a GPU, 85899345920 bytes");
    writer.fact("odd", "\u{1b}\t\n\\é");
    writer.set(1, 7);
    let record = |number: u64| {
        writer.record(&Event {
            flags: number as u16 % 64,
            device: number as u8 % 3,
            thread: 11 + number as u32 % 2,
            stack: number as u32 % 5,
            address: 0x7000_0000 + (number / 2 % 20) * 4096,
            size: 512 << (number % 20),
            extra: [number % 3, number << 32 | number],
            ..Event::new(
                // Mostly what programs do.
                match number % 4 {
                    0 | 2 => Kind::Alloc,
                    1 => Kind::Free,
                    _ => Kind::ALL[number as usize / 4 % Kind::ALL.len()],
                },
                Class::ALL[number as usize / 2 % Class::ALL.len()],
            )
        });
    };
    (0..events / 2).for_each(record);
    std::thread::scope(|scope| {
        scope.spawn(|| (events / 2..events).for_each(record));
    });
    std::fs::read(writer.path()).unwrap()
}

/// The file of version 1 in `tests/data`.
fn version_1() -> Vec<u8> {
    let mut content = Vec::new();
    for line in include_str!("../tests/data/trace-1.0.hex").lines() {
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        if let Some(bytes) = line.strip_prefix("# bytes 0x") {
            content.resize(number(bytes), 0);
        } else if let Some((at, bytes)) = line.split_once(' ').filter(|(at, _)| *at != "#") {
            for index in 0..16 {
                content[number(at) + index] = number(&bytes[2 * index..2 * index + 2]) as u8;
            }
        }
    }
    content
}

/// The same file without the room for more in parts that are lists.
fn compact(content: &[u8]) -> Vec<u8> {
    let lists = [
        PartKind::Counters,
        PartKind::Facts,
        PartKind::Cursor,
        PartKind::Strings,
        PartKind::Stacks,
        PartKind::Modules,
        PartKind::Jit,
        PartKind::Live,
        PartKind::Totals,
        PartKind::Timeline,
    ];
    let mut small = content[..layout::HEADER_BYTES].to_vec();
    let directory = get_u32(content, header::PARTS_OFFSET).unwrap() as usize;
    for (index, (kind, range)) in parts(content).into_iter().enumerate() {
        let mut held = &content[range];
        if lists.iter().any(|list| *list as u32 == kind) {
            let used = held.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            // Whole entries of any part, and the cursor's second word.
            held = &held[..used.next_multiple_of(1536).min(held.len())];
        }
        let at = directory + index * part::BYTES;
        let begin = (small.len() as u64).to_le_bytes();
        put(&mut small, at + part::OFFSET, &begin);
        put(
            &mut small,
            at + part::LENGTH,
            &(held.len() as u64).to_le_bytes(),
        );
        small.extend(held);
    }
    let bytes = (small.len() as u64).to_le_bytes();
    put(&mut small, header::FILE_BYTES, &bytes);
    resum(&mut small);
    small
}

fn put(content: &mut [u8], at: usize, bytes: &[u8]) {
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

fn resum(content: &mut [u8]) {
    let sum = layout::checksum(&content[..layout::HEADER_BYTES]);
    put(content, header::CHECKSUM, &sum.to_le_bytes());
}
