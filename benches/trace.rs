//! What recording one event costs: `cargo bench --bench trace`.
//!
//! The ring is larger than the sample so that pages are warm, as they are in a process that runs.

use divan::Bencher;
use gpushim_core::trace::{Class, Event, Kind, Trace, Writer, WriterOptions};

fn main() {
    divan::main();
}

fn writer(dir: &tempfile::TempDir) -> Writer {
    let options = WriterOptions {
        bytes: 16 << 20,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("bench.trace"), &options)
        .expect("a writable temporary directory");
    writer.prefault(u64::MAX);
    writer
}

fn event() -> Event {
    Event {
        address: 1 << 40,
        size: 512,
        ..Event::new(Kind::Alloc, Class::Device)
    }
}

/// Thousand events, so that the figure divided by 1000 is one event without the bench's own cost.
#[divan::bench(threads = [1, 2])]
fn record_1000(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    bencher.bench(|| {
        for _ in 0..1000 {
            writer.record(divan::black_box(&event()));
        }
    });
}

/// The part of it that is the clock.
#[divan::bench]
fn now_1000(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    bencher.bench(|| {
        for _ in 0..1000 {
            divan::black_box(writer.now());
        }
    });
}

/// Reading a ring of 262,144 events.
#[divan::bench]
fn read(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    for _ in 0..300_000 {
        writer.record(&event());
    }
    let events = 262_144_usize;
    bencher
        .counter(divan::counter::ItemsCount::new(events))
        .bench(|| {
            let trace = Trace::open(writer.path()).expect("a sound trace");
            assert_eq!(
                trace
                    .events()
                    .filter(|record| record.event.size == 512)
                    .count(),
                events
            );
        });
}
