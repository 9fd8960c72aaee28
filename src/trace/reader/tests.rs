//! Damaged, foreign, older and newer files.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::trace::layout::{self, field, header, part};
use crate::trace::{Class, Kind, Writer, WriterOptions};

const SLOTS: usize = 64;
const EVENTS: u64 = 100;

/// A sound file with a wrapped ring of 64 slots.
fn sound() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 4096,
        counters: &["hits"],
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    for number in 0..EVENTS {
        writer.record(&Event {
            address: number,
            size: 512,
            ..Event::new(Kind::Alloc, Class::Device)
        });
    }
    std::fs::read(writer.path()).unwrap()
}

fn ring_at() -> usize {
    WriterOptions::FIXED_BYTES as usize
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
    trace.counters();
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
    assert_eq!(trace.counters(), [("hits".to_string(), 0)]);
    assert_eq!(
        (trace.header().major, trace.header().minor),
        (layout::MAJOR, layout::MINOR)
    );
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
    assert!(says(&newer).contains("format version 2.0"));
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
    let whole = sound();
    let steps = (0..whole.len()).step_by(1024);
    let near_edges = [4096, 8192, ring_at()]
        .into_iter()
        .flat_map(|edge| edge - 9..edge + 9);
    let in_ring = (ring_at()..whole.len()).step_by(13);
    for length in steps.chain(near_edges).chain(in_ring) {
        let Some(trace) = exhaust(&whole[..length]) else {
            assert!(length < layout::HEADER_BYTES);
            continue;
        };
        let slots = length.saturating_sub(ring_at()) / layout::RECORD_BYTES;
        assert_eq!(trace.readable(), slots as u64);
        assert_eq!(trace.events().count(), slots);
        let tickets: Vec<_> = trace.events().map(|record| record.ticket).collect();
        assert!(tickets.is_sorted());
        assert!(
            trace.problems()[0].starts_with("the file is cut off: "),
            "{:?}",
            trace.problems()
        );
        if length > ring_at() {
            assert_eq!(
                (trace.recorded(), trace.lost()),
                (EVENTS, EVENTS - slots as u64)
            );
        }
    }
}

#[test]
fn every_flipped_byte_of_the_header_is_survived_and_noticed() {
    let whole = sound();
    let parts = header::PARTS_AT..header::PARTS_AT + 4 * part::BYTES;
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
    for flip in [0x02, 0x40, 0x8000_0000_0000_0000_u64, u64::MAX] {
        let mut damaged = sound();
        let at = ring_at() + 3 * layout::RECORD_BYTES;
        let word = layout::get_u64(&damaged, at).unwrap() ^ flip;
        layout::put(&mut damaged, at, &word.to_le_bytes());
        let trace = exhaust(&damaged).unwrap();
        assert_eq!(trace.events().count(), SLOTS - 1, "{flip:x}");
        assert_eq!(trace.recorded(), EVENTS, "{flip:x}");
        assert_eq!(trace.lost() + trace.torn(), 37);
        assert!(
            trace.problems()[0].contains("impossible sequence"),
            "{:?}",
            trace.problems()
        );
    }
}

#[test]
fn a_damaged_cursor_is_replaced_by_what_the_slots_say() {
    let cursor_at = ring_at() - layout::cursor::BYTES;
    for next in [0, 5, 1 << 50, u64::MAX] {
        let mut damaged = sound();
        layout::put(&mut damaged, cursor_at, &u64::to_le_bytes(next));
        let trace = exhaust(&damaged).unwrap();
        assert_eq!(
            (trace.recorded(), trace.events().count()),
            (EVENTS, SLOTS),
            "{next}"
        );
        assert!(
            trace.problems()[0].contains("cursor"),
            "{:?}",
            trace.problems()
        );
    }
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

/// The same file with the pair that is not in force zeroed.
fn sound_like(content: &[u8], other: usize) -> Vec<u8> {
    let mut copy = content.to_vec();
    copy[other..other + 16].fill(0);
    copy
}

/// A file as a later minor version might write it: records twice as long with their fields
/// elsewhere and one more, an unknown part, an unknown kind of event.
#[test]
fn a_file_of_a_newer_minor_version_is_read() {
    let old = sound();
    let mut new = old[..ring_at()].to_vec();
    layout::put(&mut new, header::MINOR, &9_u32.to_le_bytes());
    let ring_part = header::PARTS_AT + 3 * part::BYTES;
    layout::put(&mut new, ring_part + part::STRIDE, &128_u64.to_le_bytes());
    layout::put(
        &mut new,
        ring_part + part::LENGTH,
        &(SLOTS as u64 * 128).to_le_bytes(),
    );
    let extra_part = header::PARTS_AT + 4 * part::BYTES;
    layout::put(&mut new, extra_part + part::KIND, &77_u32.to_le_bytes());
    layout::put(&mut new, extra_part + part::STRIDE, &1_u64.to_le_bytes());
    layout::put(&mut new, header::PARTS_COUNT, &5_u32.to_le_bytes());
    // Address moves to the second half; a field that nobody knows is added.
    let address = header::FIELDS_AT + 9 * field::BYTES;
    layout::put(&mut new, address + field::OFFSET, &96_u16.to_le_bytes());
    let added = header::FIELDS_AT + layout::FIELDS.len() * field::BYTES;
    layout::put(&mut new, added, b"colour");
    layout::put(&mut new, added + field::WIDTH, &8_u16.to_le_bytes());
    layout::put(&mut new, header::FIELDS_COUNT, &14_u32.to_le_bytes());
    layout::put(
        &mut new,
        header::FILE_BYTES,
        &(ring_at() as u64 + SLOTS as u64 * 128).to_le_bytes(),
    );
    let sum = layout::checksum(&new[..layout::HEADER_BYTES]);
    layout::put(&mut new, header::CHECKSUM, &sum.to_le_bytes());
    for slot in old[ring_at()..].chunks(64) {
        let mut record = [0; 128];
        record[..64].copy_from_slice(slot);
        record[96..104].copy_from_slice(&slot[32..40]);
        record[32..40].fill(0xaa);
        record[16] = 200;
        new.extend(record);
    }
    let trace = exhaust(&new).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    let events: Vec<_> = trace
        .events()
        .map(|record| (record.event.kind, record.event.address))
        .collect();
    assert_eq!(
        events,
        (36..100)
            .map(|number| (Kind::Unknown, number))
            .collect::<Vec<_>>()
    );
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
    ) {
        let mut damaged = sound();
        // The facts are long and dull: aim at what surrounds them.
        let interesting = damaged.len() - ring_at() + 12_288;
        for (at, value) in writes {
            let at = at % interesting;
            let at = if at < 8192 { at } else { damaged.len() - interesting + at };
            layout::put(&mut damaged, at, &value.to_le_bytes());
        }
        damaged[..8].copy_from_slice(&layout::MAGIC);
        damaged[header::MAJOR..header::MAJOR + 4].copy_from_slice(&layout::MAJOR.to_le_bytes());
        for (at, value) in header_writes {
            damaged[at] = value;
        }
        let length = damaged.len() * length / 1000;
        exhaust(&damaged[..length]);
    }

    #[test]
    fn any_bytes_are_survived(content in prop::collection::vec(any::<u8>(), 0..9000)) {
        exhaust(&content);
        let mut with_magic = layout::MAGIC.to_vec();
        with_magic.extend([1, 0, 0, 0]);
        with_magic.extend(content);
        exhaust(&with_magic);
    }
}
