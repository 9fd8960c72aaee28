//! Trace files to begin with, sound and damaged, for `fuzz/examples/corpus.rs` and
//! `tests/damage.rs`.
//!
//! A writer's file has megabytes of mostly zeros. Here each part is cut to its contents, so that a
//! change of a few bytes has an effect.

use std::ops::Range;
use std::time::Duration;

use gpushim_trace::attached::{self, Attached};
use gpushim_trace::fnv;
use gpushim_trace::layout::{self, PartKind, get_u32, get_u64, header, part};
use gpushim_trace::spool::{SpoolLimits, SpoolOptions, Spooler};
use gpushim_trace::{
    BuildId, Class, Event, Facts, Kind, Module, SITE, Site, StackNode, Writer, WriterOptions, flags,
};

use super::read_all::spool;

#[path = "../tests/data/mod.rs"]
mod data;

/// Sound files: of every version, of rings in several states, and with all that a run leaves.
pub fn sound() -> Vec<(&'static str, Vec<u8>)> {
    let mut all: Vec<_> = [
        ("1.0", data::file("1.0")),
        ("wrapped", written(4096, 100)),
        ("empty", written(4096, 0)),
        ("begun", written(4096, 30)),
        ("chunks", written(32 << 10, 700)),
    ]
    .map(|(name, content)| (name, compact(&content)))
    .into();
    let (trace, frames) = full();
    let mut spooled = compact(&trace);
    spooled.extend(spool::plain(&frames));
    all.push(("full", spooled.clone()));
    spooled.extend(attached::encode(Attached::Summary, b"{\"gpushim_summary\":1}").unwrap());
    let names = "gpushim symbols 1\nmodule\t\t/usr/bin/train\n2344\t\tmain\tmain.c\t7\nend";
    let sum = fnv::sum(names.bytes().map(u64::from));
    let names = format!("{names}\t{sum:016x}\n");
    spooled.extend(attached::encode(Attached::Symbols, names.as_bytes()).unwrap());
    all.push(("attached", spooled));
    all
}

/// A file in its packed form, in small pieces.
#[allow(dead_code, reason = "not all who read seeds have a use for it")]
pub fn packed(content: &[u8]) -> Vec<u8> {
    let pieces = content.chunks(8 << 10);
    pieces
        .flat_map(|piece| zstd::bulk::compress(piece, 1).unwrap())
        .collect()
}

/// Files damaged in the ways in which files are.
pub fn damaged() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for (name, whole) in sound().into_iter().filter(|(name, _)| *name == "full") {
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

/// A file of this many bytes of ring, with events of every kind by two threads, as this version
/// writes it.
fn written(bytes: u64, events: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes,
        rank: Some(3),
        // Committed files contain no facts of the machine that made them.
        facts: Facts::None,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    writer.fact("gpu.0", "a GPU, 85899345920 bytes");
    writer.fact("odd", "\u{1b}\t\n\\é");
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
                // Mostly operations of real programs.
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

/// A file and its spool, with something in every part.
fn full() -> (Vec<u8>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 8192,
        live_blocks: Some(1024),
        // Committed files contain no facts of the machine that made them.
        facts: Facts::None,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    let spooled = SpoolOptions {
        limits: SpoolLimits {
            max_bytes: None,
            floor: 0,
        },
        ..SpoolOptions::new()
    };
    let spooler = Spooler::start(&writer, spooled).unwrap();
    let begin = 0x5500_0000_0000_u64;
    for (number, path) in ["/usr/bin/train", "/usr/lib/libtorch.so", ""]
        .into_iter()
        .enumerate()
    {
        let number = number as u64;
        writer.module(&Module {
            begin: begin + number * 0x1_0000,
            end: begin + (number + 1) * 0x1_0000,
            bias: begin + number * 0x1_0000,
            path: writer.intern(path),
            generation: number / 2,
            build_id: BuildId::new(&[number as u8; 20][..20 * (number as usize % 2)]),
        });
    }
    for number in 0..4 {
        let name = writer.intern(["py::forward:/src/model.py", "kernel\t\\n"][number as usize % 2]);
        writer.jit(
            begin + 0x10_0000 + number * 64,
            64 + 32 * number as u32,
            name,
        );
    }
    let domain = writer.intern("torch");
    let ranges = writer.stack_child(
        0,
        StackNode::Range {
            name: writer.intern("step 1"),
            domain,
        },
    );
    let range = Event {
        address: u64::from(writer.intern("step 1")),
        extra: [u64::from(domain), 0],
        stack: ranges,
        ..Event::new(Kind::RangePush, Class::Unknown)
    };
    writer.record(&range);
    let place = Site {
        name: writer.intern("Model.forward"),
        file: writer.intern("/src/model.py"),
        line: 41,
    };
    let site = writer.site(&[1; 4], || Some(place)).unwrap();
    let (mut frames, mapped) = (Vec::new(), options.file_bytes() as usize);
    for number in 0..150_u64 {
        let stack =
            [number % 3 * 0x8000, 0x1_2345, 0x10_0010 + number % 4 * 64].map(|frame| begin + frame);
        let stack = [stack[0], SITE | u64::from(site), stack[1], stack[2]];
        let event = |kind, block: u64| Event {
            flags: [flags::HIT, flags::GROWN, flags::FORWARDED][number as usize % 3],
            device: (block % 9) as u8,
            stack: writer.stack(ranges * u32::from(block.is_multiple_of(2)), &stack),
            thread: 11,
            address: 0x7000_0000 + block * 4096,
            size: 512 << (block % 20),
            extra: [0, 1 << 32 | number],
            ..Event::new(
                kind,
                [Class::Device, Class::Tensor, Class::Host][block as usize % 3],
            )
        };
        writer.record_alloc(&event(Kind::Alloc, number));
        if number % 5 > 0 {
            writer.record_free(&event(Kind::Free, number));
        }
        if [40, 80, 120].contains(&number) {
            // Before the ring is lapped. Events after the last time are in the ring alone.
            spooler.flush(Duration::from_secs(60)).unwrap();
            frames = std::fs::read(writer.path()).unwrap().split_off(mapped);
        }
    }
    // As a kill leaves it.
    let mut trace = std::fs::read(writer.path()).unwrap();
    trace.truncate(mapped);
    (trace, frames)
}

/// Makes a file without its spare room: lists are cut, and the ring never wrapped.
pub fn compact(content: &[u8]) -> Vec<u8> {
    let halved = halved(content);
    let content = halved.as_deref().unwrap_or(content);
    let lists = [
        PartKind::Facts,
        PartKind::Cursor,
        PartKind::Strings,
        PartKind::Stacks,
        PartKind::Modules,
        PartKind::Jit,
        PartKind::Sites,
        PartKind::Live,
        PartKind::Totals,
        PartKind::Timeline,
    ];
    let mut small = content[..layout::HEADER_BYTES].to_vec();
    let directory = get_u32(content, header::PARTS_OFFSET).unwrap() as usize;
    for (index, (kind, range)) in parts(content).into_iter().enumerate() {
        let mut held = &content[range];
        let groups;
        if kind == PartKind::Live as u32 {
            // A reader ignores the group that a block is in, and the remains of freed blocks.
            let keys = layout::live::KEYS * 8;
            let is_used = |group: &&[u8]| group.iter().take(keys).any(|byte| *byte != 0);
            let (head, rest) = held.split_at(layout::live::HEAD_BYTES);
            let used = rest.chunks(layout::live::GROUP_BYTES).filter(is_used);
            groups = [head].into_iter().chain(used).collect::<Vec<_>>().concat();
            held = &groups;
        }
        if lists.iter().any(|list| *list as u32 == kind) {
            let used = held.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
            // Whole entries of any part, and the cursor's second word. The timeline of a long run,
            // as on a busy machine, is mostly halfway. The reader accepts a cut timeline.
            let most = if kind == PartKind::Timeline as u32 {
                6 << 10
            } else {
                usize::MAX
            };
            held = &held[..used.next_multiple_of(1536).min(most).min(held.len())];
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

/// Halves the ring of a file as often as its second half is empty.
fn halved(content: &[u8]) -> Option<Vec<u8>> {
    let (ring, chunks) = (
        part_of(content, PartKind::Ring)?,
        part_of(content, PartKind::Chunks)?,
    );
    let (mut slots, mut words) = (ring.len(), chunks.len());
    let is_free = |range: Range<usize>| content[range].iter().all(|byte| *byte == 0);
    while words > 64
        && is_free(ring.start + slots / 2..ring.end)
        && is_free(chunks.start + words / 2..chunks.end)
    {
        (slots, words) = (slots / 2, words / 2);
    }
    let mut content = content.to_vec();
    let directory = get_u32(&content, header::PARTS_OFFSET)? as usize;
    for index in 0..get_u32(&content, header::PARTS_COUNT)? as usize {
        let at = directory + index * part::BYTES;
        let length = match get_u32(&content, at + part::KIND)? {
            kind if kind == PartKind::Ring as u32 => slots,
            kind if kind == PartKind::Chunks as u32 => words,
            _ => continue,
        };
        put(
            &mut content,
            at + part::LENGTH,
            &(length as u64).to_le_bytes(),
        );
    }
    Some(content)
}

fn put(content: &mut [u8], at: usize, bytes: &[u8]) {
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

fn resum(content: &mut [u8]) {
    let sum = layout::checksum(&content[..layout::HEADER_BYTES]);
    put(content, header::CHECKSUM, &sum.to_le_bytes());
}
