//! Cost of recording one event: `cargo bench --bench trace`.
//!
//! The ring is larger than the sample so that pages are warm, as they are in a process that runs.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use divan::Bencher;
use gpushim_trace::{Class, Event, Kind, Trace, Writer, WriterOptions};

fn main() {
    divan::main();
}

static RUNS: AtomicU64 = AtomicU64::new(1);
static THREADS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The run that this thread was last in, its number, and the state of its random numbers.
    static MINE: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 88_172_645_463_325_252)) };
}

fn writer(dir: &tempfile::TempDir) -> Writer {
    let options = WriterOptions {
        bytes: 16 << 20,
        live_blocks: Some(131_072),
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
#[divan::bench(threads = [1, 8])]
fn record_1000(bencher: Bencher) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    bencher.bench(|| {
        for _ in 0..1000 {
            writer.record(divan::black_box(&event()));
        }
    });
}

/// Five hundred frees, each followed by an allocation of the same block, with this number of live
/// blocks on each thread: a thousand events with live table and totals.
#[divan::bench(threads = [1, 8], args = [100, 10_000])]
fn free_and_alloc_500(bencher: Bencher, live: u64) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let writer = writer(&dir);
    let block = |kind, thread: u64, number: u64| Event {
        kind,
        // Blocks of 2 MiB, each thread's apart from the others'.
        address: thread << 40 | number << 21,
        ..event()
    };
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    bencher.bench(|| {
        let (thread, mut state) = MINE.with(|mine| {
            let (mut of, mut thread, state) = mine.get();
            if of != run {
                // The thread's first time in this run.
                (of, thread) = (run, THREADS.fetch_add(1, Ordering::Relaxed));
                for number in 0..live {
                    writer.record_alloc(&block(Kind::Alloc, thread, number));
                }
                mine.set((of, thread, state));
            }
            (thread, state)
        });
        for _ in 0..500 {
            // Xorshift (Marsaglia).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let number = state % live;
            divan::black_box(writer.record_free(&block(Kind::Free, thread, number)));
            writer.record_alloc(&block(Kind::Alloc, thread, number));
        }
        MINE.with(|mine| mine.set((run, thread, state)));
    });
}

/// The clock's part of this cost.
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
