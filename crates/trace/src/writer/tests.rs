//! Files of the writer, read back through the reader.

use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::{Class, Cost, Kind, Record, Trace, flags};

mod blocks;
mod chunks;
mod ended;
mod fact_lines;
mod files;

use chunks::{chunked, numbers, open_chunks};

fn small() -> WriterOptions {
    WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    }
}

/// Returns an event whose words all follow from one number, so that a mixture shows.
fn numbered(thread: u32, number: u64) -> Event {
    Event {
        thread,
        address: number,
        size: number.wrapping_mul(3),
        extra: [number ^ u64::MAX, number << 1],
        stack: number as u32,
        ..Event::new(Kind::Alloc, Class::Device)
    }
}

fn assert_whole(record: &Record) {
    let event = &record.event;
    assert_eq!(
        *event,
        numbered(event.thread, event.address),
        "ticket {}",
        record.ticket
    );
}

#[test]
fn an_event_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    let event = Event {
        kind: Kind::OutOfMemory,
        class: Class::PoolAsync,
        flags: flags::GROWN | flags::CAPTURE,
        device: 3,
        stream: 9,
        result: -2,
        thread: 0xdead_beef,
        stack: 0xcafe_f00d,
        address: 0x7fff_0000_1234_5678,
        size: u64::MAX,
        extra: [1, Cost::pack(35_000, 2 << 20)],
    };
    writer.record(&event);
    writer.record(&Event::new(Kind::Free, Class::Tensor));
    let trace = Trace::open(writer.path()).unwrap();
    let records: Vec<_> = trace.events().collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].event, event);
    assert_eq!(records[1].event, Event::new(Kind::Free, Class::Tensor));
    assert_eq!([records[0].ticket, records[1].ticket], [0, 1]);
    assert!(records[0].ns <= records[1].ns);
    assert_eq!(
        (
            trace.recorded(),
            trace.readable(),
            trace.lost(),
            trace.torn()
        ),
        (2, 2, 0, 0)
    );
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn times_are_those_of_the_clock() {
    let dir = tempfile::tempdir().unwrap();
    let before = Instant::now();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    writer.record(&numbered(0, 0));
    std::thread::sleep(Duration::from_millis(20));
    writer.record(&numbered(0, 1));
    let passed = before.elapsed();
    let times: Vec<_> = Trace::open(writer.path())
        .unwrap()
        .events()
        .map(|record| record.ns)
        .collect();
    // Only the pairs of the creation, 0.2 ms apart: they may be off by 1 % at most.
    assert!(times[1] - times[0] >= 19_800_000, "{times:?}");
    assert!(
        u128::from(times[1]) <= passed.as_nanos() * 101 / 100,
        "{times:?} in {passed:?}"
    );
    writer.calibrate();
    let trace = Trace::open(writer.path()).unwrap();
    let again: Vec<_> = trace.events().map(|record| record.ns).collect();
    assert!(again[1] - again[0] >= 19_990_000, "{again:?}");
    assert_eq!(trace.header().clock_source, Some(writer.clock));
}

#[test]
fn a_block_has_the_ticks_that_its_caller_read() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    let event = |kind| Event {
        address: 0x1000,
        size: 512,
        ..Event::new(kind, Class::Tensor)
    };
    let before = Instant::now();
    writer.record(&numbered(0, 0));
    let begun = writer.clock.now_after();
    let passed = before.elapsed();
    std::thread::sleep(Duration::from_millis(20));
    writer.prefetch(&event(Kind::TensorAlloc));
    writer.record_alloc_at(&event(Kind::TensorAlloc), begun);
    // A thread's events are in the order of their times.
    let freed = writer.record_free_at(&event(Kind::TensorFree), begun - 1000);
    assert_eq!(freed.map(|block| block.size), Some(512));
    let trace = Trace::open(writer.path()).unwrap();
    let times: Vec<_> = trace.events().map(|record| record.ns).collect();
    assert!(times.is_sorted(), "{times:?}");
    let most = passed + Duration::from_millis(10);
    assert!(
        u128::from(times[2] - times[0]) < most.as_nanos(),
        "{times:?} {passed:?}"
    );
}

#[test]
fn the_file_is_private_and_never_over_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.trace");
    std::fs::write(&path, "precious").unwrap();
    let first = Writer::create(&path, &small()).unwrap();
    let second = Writer::create(&path, &small()).unwrap();
    assert_eq!(first.path(), dir.path().join("run-1.trace"));
    assert_eq!(second.path(), dir.path().join("run-2.trace"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let meta = std::fs::metadata(first.path()).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(meta.len(), small().file_bytes());
    let large = WriterOptions::default();
    assert_eq!(large.file_bytes() % 4096, 0);
    assert!(large.file_bytes() < (large.bytes * 129 / 128) + (48 << 20));
}

#[test]
fn a_path_that_cannot_be_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = Writer::create(&dir.path().join("file/a.trace"), &small()).err();
    let error = error.expect("no trace below a file");
    assert_eq!(said(&error).kind(), io::ErrorKind::NotADirectory);
    assert!(error.to_string().starts_with("create the trace "));
}

#[test]
fn a_wrapped_ring_holds_the_newest_and_counts_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    for number in 0..1000 {
        writer.record(&numbered(1, number));
    }
    let trace = Trace::open(writer.path()).unwrap();
    let numbers: Vec<_> = trace.events().map(|record| record.event.address).collect();
    assert_eq!(numbers, (936..1000).collect::<Vec<_>>());
    assert_eq!(
        (
            trace.recorded(),
            trace.readable(),
            trace.lost(),
            trace.torn()
        ),
        (1000, 64, 936, 0)
    );
    assert!(trace.has_wrapped());
}

/// Records before and after a child is forked that ends. Returns the child's exit status, or a
/// number beyond these if the chunk was closed meanwhile.
extern "C" fn ends_in_a_forked_child(writer: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the test passes its writer, which outlives this thread.
    let writer = unsafe { &*writer.cast::<Writer>() };
    writer.record(&numbered(1, 0));
    let mut status = -1;
    // SAFETY: the child does nothing but return, which ends its only thread and so itself.
    let child = unsafe { libc::fork() };
    if child > 0 {
        // SAFETY: the pointer is to a local integer.
        unsafe { libc::waitpid(child, &mut status, 0) };
        if open_chunks(writer) != 1 {
            status |= 1 << 20;
        }
        writer.record(&numbered(1, 1));
    }
    std::ptr::without_provenance_mut(status as usize)
}

#[test]
fn threads_and_a_reader_at_once() {
    const EACH: u64 = 50_000;
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &chunked()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let writer = &writer;
            scope.spawn(move || {
                (0..EACH).for_each(|number| writer.record(&numbered(thread, number)))
            });
        }
        for _ in 0..20 {
            let trace = Trace::open(writer.path()).unwrap();
            assert_eq!(trace.problems(), [] as [&str; 0]);
            trace.events().for_each(|record| assert_whole(&record));
            assert_eq!(
                trace.recorded(),
                trace.readable() + trace.lost() + trace.torn()
            );
        }
    });
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!((trace.recorded(), trace.torn()), (4 * EACH, 0));
    assert_eq!((trace.readable(), trace.dropped()), (1024, 0));
    assert!(trace.events().is_sorted_by_key(|record| record.ns));
    let mut last = [None; 4];
    for record in trace.events() {
        assert_whole(&record);
        let last = &mut last[record.event.thread as usize];
        assert!(
            *last < Some(record.event.address),
            "a thread's events are in its order"
        );
        *last = Some(record.event.address);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// Threads that each record a number of events, end, and start again: every event is accounted
    /// for.
    #[test]
    fn all_events_of_many_threads_are_accounted_for(
        shift in 12..19_u32,
        threads in prop::collection::vec((1..4_u64, 1..3000_u64), 1..8),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions { bytes: 1 << shift, ..WriterOptions::default() };
        let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
        let run = |name: u32, lives: u64, each: u64| {
            for life in 0..lives {
                std::thread::scope(|scope| {
                    let live = || (0..each).for_each(|at| writer.record(&numbered(name, life * each + at)));
                    scope.spawn(live).join().unwrap();
                });
            }
        };
        let run = &run;
        std::thread::scope(|scope| {
            for (name, (lives, each)) in (0..).zip(&threads) {
                scope.spawn(move || run(name, *lives, *each));
            }
        });
        let trace = Trace::open(writer.path()).unwrap();
        prop_assert_eq!(trace.problems(), &[] as &[String]);
        let recorded: u64 = threads.iter().map(|(lives, each)| lives * each).sum();
        prop_assert_eq!((trace.recorded(), trace.torn(), trace.dropped()), (recorded, 0, 0));
        let mut last = vec![None; threads.len()];
        let mut kept = 0;
        for (record, place) in trace.events().zip(trace.lost()..) {
            assert_whole(&record);
            prop_assert_eq!(record.ticket, place);
            let last = &mut last[record.event.thread as usize];
            prop_assert!(*last < Some(record.event.address), "a thread's events are in its order");
            *last = Some(record.event.address);
            kept += 1;
        }
        prop_assert_eq!((kept, kept + trace.lost()), (trace.readable(), recorded));
        prop_assert_eq!(open_chunks(&writer), 0);
        if !trace.has_wrapped() {
            prop_assert_eq!(trace.lost(), 0);
        }
    }
}

#[test]
fn an_alloc_that_follows_a_free_by_another_thread_comes_after_it() {
    const BLOCKS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 8 << 20,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    // One block that circulates: a thread frees it under the lock, as the pool does. The next
    // thread records its allocation after the lock.
    let (free, handed_out) = (Mutex::new(true), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (free, handed_out, writer) = (&free, &handed_out, &writer);
            scope.spawn(move || {
                let event = |kind| Event {
                    thread,
                    address: 1,
                    ..Event::new(kind, Class::Device)
                };
                while handed_out.load(Ordering::Relaxed) < BLOCKS {
                    if std::mem::take(&mut *free.lock()) {
                        writer.record(&event(Kind::Alloc));
                        handed_out.fetch_add(1, Ordering::Relaxed);
                        let mut free = free.lock();
                        writer.record(&event(Kind::Free));
                        *free = true;
                    }
                }
            });
        }
    });
    let trace = Trace::open(writer.path()).unwrap();
    let kinds: Vec<_> = trace.events().map(|record| record.event.kind).collect();
    assert_eq!(trace.lost(), 0);
    assert!(kinds.len() as u64 >= 2 * BLOCKS);
    for (at, pair) in kinds.chunks(2).enumerate() {
        assert_eq!(pair, [Kind::Alloc, Kind::Free], "pair {at}");
    }
}

#[test]
fn prefaulting_is_harmless_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 1 << 20,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    for number in 0..40_000 {
        if number % 1000 == 0 {
            writer.prefault(100_000);
        }
        writer.record(&numbered(1, number));
    }
    writer.prefault(u64::MAX);
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.readable(), 16_384);
    trace.events().for_each(|record| assert_whole(&record));
}

/// Runs `child_process` of this test binary.
fn child(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "writer::tests::child_process", "--nocapture"])
        .env("GPUSHIM_TEST_ROLE", role)
        .env("GPUSHIM_TEST_PATH", path)
        .stdout(Stdio::null());
    command
}

/// Returns the number of events that each thread of a child has recorded. It is in memory that
/// outlives the child: a file beside the trace.
fn counts(trace: &Path) -> &'static [AtomicU64] {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(trace.with_extension("counts"))
        .unwrap();
    file.set_len(4096).unwrap();
    let map = Box::leak(Box::new(mapped::map(&file, 4096).unwrap()));
    // SAFETY: the mapping is page-aligned, larger, never unmapped, and only accessed atomically.
    unsafe { std::slice::from_raw_parts(map.as_ptr().cast::<AtomicU64>(), 4) }
}

/// Returns the system's error behind an error.
fn said(error: &Error) -> &io::Error {
    std::error::Error::source(error)
        .and_then(|source| source.downcast_ref())
        .expect("an error of the system")
}

/// Not a test by itself: the code that the tests below run as another process.
#[test]
fn child_process() {
    let (Ok(role), Some(path)) = (
        std::env::var("GPUSHIM_TEST_ROLE"),
        std::env::var_os("GPUSHIM_TEST_PATH"),
    ) else {
        return;
    };
    let bytes = std::env::var("GPUSHIM_TEST_BYTES");
    let options = WriterOptions {
        bytes: bytes.map_or(1 << 20, |bytes| bytes.parse().unwrap()),
        ..WriterOptions::default()
    };
    let created = Writer::create(Path::new(&path), &options);
    match role.as_str() {
        "write" => {
            let (writer, counts) = (created.unwrap(), counts(Path::new(&path)));
            let record = |thread: usize| {
                let count = &counts[thread];
                let number = count.load(Ordering::Relaxed);
                writer.record(&numbered(thread as u32, number));
                count.store(number + 1, Ordering::Release);
            };
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    scope.spawn(move || {
                        loop {
                            record(thread)
                        }
                    });
                }
                // Threads that end, one after the other.
                loop {
                    let handle = scope.spawn(|| (0..5).for_each(|_| record(3)));
                    handle.join().unwrap();
                }
            });
        }
        "blocks" => blocks::toggle_for_ever(&created.unwrap(), Path::new(&path)),
        "fail" => assert_eq!(
            said(&created.unwrap_err()).raw_os_error(),
            Some(libc::EFBIG)
        ),
        other => panic!("no role {other}"),
    }
}

fn wait_for_trace(path: &Path, child: &mut Child) -> Trace {
    let begin = Instant::now();
    loop {
        match Trace::open(path) {
            Ok(trace) if trace.recorded() > 0 => return trace,
            _ if begin.elapsed() > Duration::from_secs(20) => {
                panic!("no trace; child: {:?}", child.try_wait())
            }
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
