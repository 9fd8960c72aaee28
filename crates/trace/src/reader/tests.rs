//! Damaged, foreign, older and newer files.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::layout::{self, field, header, part};
use crate::{Class, Kind, Writer, WriterOptions};

#[path = "../../../../tests/data/mod.rs"]
mod data;
mod versions;

const SLOTS: usize = 64;
const EVENTS: u64 = 100;

/// A sound file with a wrapped ring of 64 slots, in chunks of one.
fn sound() -> Vec<u8> {
    written(4096, EVENTS)
}

/// A sound file with a wrapped ring of 1,024 slots in chunks of four.
fn chunked() -> Vec<u8> {
    written(64 << 10, 1500)
}

fn written(bytes: u64, events: u64) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    for number in 0..events {
        writer.record(&Event {
            address: number,
            size: 512,
            ..Event::new(Kind::Alloc, Class::Device)
        });
    }
    std::fs::read(writer.path()).unwrap()
}

/// Returns the offset of a part's entry in the directory.
fn entry_of(content: &[u8], kind: layout::PartKind) -> usize {
    let count = layout::get_u32(content, header::PARTS_COUNT).unwrap() as usize;
    (0..count)
        .map(|index| header::PARTS_AT + index * part::BYTES)
        .find(|at| layout::get_u32(content, at + part::KIND) == Some(kind as u32))
        .unwrap()
}

/// Returns the offset of a part of a file.
fn part_at(content: &[u8], kind: layout::PartKind) -> usize {
    let entry = entry_of(content, kind);
    layout::get_u64(content, entry + part::OFFSET).unwrap() as usize
}

fn ring_at(content: &[u8]) -> usize {
    part_at(content, layout::PartKind::Ring)
}

fn parse(content: &[u8]) -> Result<Trace, Error> {
    Trace::from_bytes(Path::new("x.trace"), content)
}

/// Reads all that can be read; what it gives must be bounded by the file.
fn exhaust(content: &[u8]) -> Option<Trace> {
    let trace = parse(content).ok()?;
    let events = trace.events().count();
    assert!(events <= content.len() / 16);
    assert!(events as u64 <= trace.readable());
    assert!(trace.facts().len() <= content.len());
    trace.facts_cut();
    trace.lost();
    Some(trace)
}

#[test]
fn content_and_file_are_read_alike() {
    let trace = parse(&sound()).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!(
        (trace.recorded(), trace.readable(), trace.lost()),
        (100, 64, 36)
    );
    assert_eq!(
        (trace.header().major, trace.header().minor),
        (layout::MAJOR, layout::MINOR)
    );
}

#[test]
fn at_the_same_instant_a_free_comes_before_an_allocation() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    for kind in [Kind::Reserve, Kind::Alloc, Kind::Free] {
        writer.record(&Event::new(kind, Class::Device));
    }
    let mut content = std::fs::read(writer.path()).unwrap();
    // As if by three threads: each event is a chunk of its own here.
    let ticks = |slot: usize| ring_at(&content) + slot * layout::RECORD_BYTES + 8;
    let first = layout::get_u64(&content, ticks(0)).unwrap();
    for at in [ticks(1), ticks(2)] {
        layout::put(&mut content, at, &first.to_le_bytes());
    }
    let trace = parse(&content).unwrap();
    let kinds: Vec<_> = trace.events().map(|record| record.event.kind).collect();
    assert_eq!(kinds, [Kind::Free, Kind::Reserve, Kind::Alloc]);
}

#[test]
fn what_is_no_trace_is_said() {
    let says = |content: &[u8]| parse(content).unwrap_err().to_string();
    assert_eq!(says(b""), "read the trace x.trace: it is empty");
    assert!(says(b"short").contains("it is empty"));
    assert!(says(&[0; 5000]).contains("never completely created"));
    assert!(says(&[b'x'; 5000]).contains("not a gpushim trace"));
    assert!(says(&sound()[..100]).contains("cut off in its header"));
    let mut newer = sound();
    newer[header::MAJOR] = 2;
    assert!(says(&newer).contains(&format!("format version 2.{}", layout::MINOR)));
    let missing = Trace::open(Path::new("/no/such.trace"))
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with("read the trace /no/such.trace: open it: "),
        "{missing}"
    );
    assert!(
        Trace::open(Path::new("/"))
            .unwrap_err()
            .to_string()
            .contains("not a regular file")
    );
}

#[test]
fn cut_anywhere_the_rest_is_read() {
    for (whole, events) in [(sound(), EVENTS), (chunked(), 1500)] {
        cut_anywhere(&whole, events);
    }
}

fn cut_anywhere(whole: &[u8], recorded: u64) {
    let ring_at = ring_at(whole);
    let capacity = (whole.len() - ring_at) / layout::RECORD_BYTES;
    let steps = (0..whole.len()).step_by(1024);
    let near_edges = [4096, 8192, ring_at]
        .into_iter()
        .flat_map(|edge| edge - 9..edge + 9);
    let in_ring = (ring_at..whole.len()).step_by(13 * capacity / SLOTS);
    for length in steps.chain(near_edges).chain(in_ring) {
        let Some(trace) = exhaust(&whole[..length]) else {
            assert!(length < layout::HEADER_BYTES);
            continue;
        };
        let slots = length.saturating_sub(ring_at) / layout::RECORD_BYTES;
        assert_eq!(trace.readable(), slots as u64);
        assert_eq!(trace.events().count(), slots);
        let numbers: Vec<_> = trace.events().map(|record| record.event.address).collect();
        assert!(numbers.is_sorted());
        assert!(
            trace.problems()[0].starts_with("the file is cut off: "),
            "{:?}",
            trace.problems()
        );
        if length > ring_at {
            assert_eq!(
                (trace.recorded(), trace.lost()),
                (recorded, recorded - slots as u64)
            );
            assert!(trace.has_wrapped());
        }
    }
}

#[test]
fn every_flipped_byte_of_the_header_is_survived_and_noticed() {
    let whole = sound();
    let count = layout::get_u32(&whole, header::PARTS_COUNT).unwrap() as usize;
    let parts = header::PARTS_AT..header::PARTS_AT + count * part::BYTES;
    let fields = header::FIELDS_AT..header::FIELDS_AT + layout::FIELDS.len() * field::BYTES;
    for at in (0..header::CHANGING_FROM).chain(parts).chain(fields) {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] ^= flip;
            if let Some(trace) = exhaust(&damaged) {
                assert!(
                    trace
                        .problems()
                        .iter()
                        .any(|problem| problem.contains("checksum")),
                    "byte {at}"
                );
            }
        }
    }
}

#[test]
fn a_flipped_sequence_word_costs_one_event() {
    for (whole, events, slots) in [(sound(), EVENTS, 64), (chunked(), 1500, 1024)] {
        for flip in [0x02, 0x40, 0x8000_0000_0000_0000_u64, u64::MAX] {
            let mut damaged = whole.clone();
            let at = ring_at(&damaged) + 3 * layout::RECORD_BYTES;
            let word = layout::get_u64(&damaged, at).unwrap() ^ flip;
            layout::put(&mut damaged, at, &word.to_le_bytes());
            let trace = exhaust(&damaged).unwrap();
            assert_eq!(trace.events().count(), slots - 1, "{flip:x}");
            assert_eq!(trace.recorded(), events, "{flip:x}");
            assert_eq!(trace.lost() + trace.torn(), events - slots as u64 + 1);
            assert!(
                trace.problems()[0].contains("impossible sequence"),
                "{:?}",
                trace.problems()
            );
        }
    }
}

#[test]
fn a_flipped_chunk_word_costs_nothing() {
    for (whole, events, slots) in [(sound(), EVENTS, 64), (chunked(), 1500, 1024)] {
        for chunk in [0, 7, 60] {
            for bit in 0..64 {
                let mut damaged = whole.clone();
                let at = part_at(&damaged, layout::PartKind::Chunks) + 8 * chunk;
                let word = layout::get_u64(&damaged, at).unwrap() ^ 1 << bit;
                layout::put(&mut damaged, at, &word.to_le_bytes());
                let trace = exhaust(&damaged).unwrap();
                assert_eq!(
                    (trace.recorded(), trace.events().count()),
                    (events, slots),
                    "bit {bit} of chunk {chunk}"
                );
                // A closed chunk that looks open holds the same events.
                if bit > 0 {
                    assert!(trace.problems()[0].contains("do not count"), "{bit}");
                }
            }
        }
    }
}

#[test]
fn without_its_chunks_a_ring_is_still_read() {
    let mut damaged = chunked();
    let entry = entry_of(&damaged, layout::PartKind::Chunks);
    layout::put(&mut damaged, entry + part::KIND, &99_u32.to_le_bytes());
    let trace = exhaust(&damaged).unwrap();
    assert_eq!((trace.events().count(), trace.recorded()), (1024, 1024));
    assert!(trace.events().is_sorted_by_key(|record| record.ns));
    assert!(
        trace.problems()[1].contains("how its event ring is divided"),
        "{:?}",
        trace.problems()
    );
}

#[test]
fn a_damaged_cursor_does_no_harm() {
    for (whole, events, slots) in [(sound(), EVENTS, 64), (chunked(), 1500, 1024)] {
        for next in [0, 5, 1 << 50, u64::MAX] {
            let mut damaged = whole.clone();
            let at = part_at(&damaged, layout::PartKind::Cursor);
            layout::put(&mut damaged, at, &u64::to_le_bytes(next));
            let trace = exhaust(&damaged).unwrap();
            assert_eq!(
                (trace.recorded(), trace.events().count()),
                (events, slots),
                "{next}"
            );
            // Too far it tells nothing wrong of chunks.
            if next < 100 {
                assert!(
                    trace.problems()[0].contains("cursor"),
                    "{:?}",
                    trace.problems()
                );
            }
        }
    }
}

#[test]
fn a_directory_full_of_nonsense_is_said_in_a_few_lines() {
    let mut damaged = sound();
    layout::put(&mut damaged, header::PARTS_COUNT, &u32::MAX.to_le_bytes());
    let trace = exhaust(&damaged).unwrap();
    assert_eq!(trace.events().count(), SLOTS);
    let problems = trace.problems();
    assert!(problems.len() < 20, "{problems:?}");
    assert!(problems.last().unwrap().contains("left out from entry"));
}

#[test]
fn damaged_clock_pairs_do_not_stop_the_reading() {
    let mut damaged = sound();
    damaged[header::CLOCK_PAIRS..header::CLOCK_PAIRS + 32].fill(0);
    let trace = exhaust(&damaged).unwrap();
    assert_eq!(trace.events().count(), SLOTS);
    assert!(
        trace.problems()[0].contains("clock"),
        "{:?}",
        trace.problems()
    );
}

#[test]
fn a_killed_calibration_leaves_the_other_pair() {
    let mut damaged = sound();
    let current = layout::get_u64(&damaged, header::CLOCK_CURRENT).unwrap() as usize;
    let other = header::CLOCK_PAIRS + (current ^ 1) * 16;
    damaged[other..other + 16].fill(0xee);
    let trace = exhaust(&damaged).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!(
        trace.header().clock,
        parse(&sound_like(&damaged, other)).unwrap().header().clock
    );
}

/// Returns the file with the pair that is not in force zeroed.
fn sound_like(content: &[u8], other: usize) -> Vec<u8> {
    let mut copy = content.to_vec();
    copy[other..other + 16].fill(0);
    copy
}

#[test]
fn escapes_end_anywhere() {
    assert_eq!(unescaped(r"a\tb\\c\nd\"), "a\tb\\c\nd\\");
    assert_eq!(unescaped(r"\x"), "x");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// Whatever is written over whichever places, the reader returns.
    #[test]
    fn any_damage_is_survived(
        writes in prop::collection::vec((0..70_000_usize, any::<u64>()), 1..20),
        header_writes in prop::collection::vec((8..1300_usize, any::<u8>()), 0..6),
        length in 0..=1000_usize,
        which in 0..2_usize,
    ) {
        let mut damaged = [sound, chunked][which]();
        let major = damaged[header::MAJOR];
        // The facts are long and dull: aim at what surrounds them.
        let interesting = damaged.len() - part_at(&damaged, layout::PartKind::Cursor) + 8192;
        for (at, value) in writes {
            let at = at % interesting;
            let at = if at < 8192 { at } else { damaged.len() - interesting + at };
            layout::put(&mut damaged, at, &value.to_le_bytes());
        }
        damaged[..8].copy_from_slice(&layout::MAGIC);
        damaged[header::MAJOR..header::MAJOR + 4].copy_from_slice(&[major, 0, 0, 0]);
        for (at, value) in header_writes {
            damaged[at] = value;
        }
        let length = damaged.len() * length / 1000;
        exhaust(&damaged[..length]);
    }

    #[test]
    fn any_bytes_are_survived(
        content in prop::collection::vec(any::<u8>(), 0..9000),
    ) {
        exhaust(&content);
        let mut with_magic = layout::MAGIC.to_vec();
        with_magic.extend(layout::MAJOR.to_le_bytes());
        with_magic.extend(content);
        exhaust(&with_magic);
    }
}
