//! What the writer leaves behind, read back through the reader.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::{Class, Cost, Kind, Record, Trace, flags};

mod blocks;
mod files;

fn small() -> WriterOptions {
    WriterOptions {
        bytes: 4096,
        ..WriterOptions::default()
    }
}

/// An event whose words all follow from one number, so that a mixture shows.
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
    // Only the pairs of the creation, 0.2 ms apart: 1 % is the most that they may be off.
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
    assert!(large.file_bytes() < (large.bytes * 129 / 128) + (38 << 20));
}

#[test]
fn a_path_that_cannot_be_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = Writer::create(&dir.path().join("no/such/dir.trace"), &small()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
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

/// A ring of 1,024 slots in chunks of 4.
fn chunked() -> WriterOptions {
    WriterOptions {
        bytes: 64 << 10,
        ..WriterOptions::default()
    }
}

/// The word of a chunk of a writer's ring.
fn chunk(writer: &Writer, index: usize) -> &AtomicU64 {
    let at = writer.mapped.places.chunks.at as usize + 8 * index;
    writer.word(at).unwrap()
}

fn open_chunks(writer: &Writer) -> usize {
    let chunks = writer.mapped.ring.capacity() / layout::chunk_slots(writer.mapped.ring.capacity());
    let open = |index: &usize| chunk(writer, *index).load(Ordering::Relaxed) & 1 == 1;
    (0..chunks).filter(open).count()
}

fn numbers(trace: &Trace) -> Vec<u64> {
    trace.events().map(|record| record.event.address).collect()
}

#[test]
fn a_writer_stalled_within_an_event_costs_its_chunk_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    for number in 0..5 {
        writer.record(&numbered(1, number));
    }
    // Chunk 5, which is slot 5, was taken by a thread that never got to publish its event, chunk 6
    // by one that never began.
    let slot = writer
        .word(Places::of(&small()).ring.at as usize + 5 * layout::RECORD_BYTES)
        .unwrap();
    slot.store(layout::Slot::writing(0), Ordering::Relaxed);
    for index in [5, 6] {
        chunk(&writer, index).store(layout::Chunk::Open(0).word(), Ordering::Relaxed);
    }
    for number in 5..1000 {
        writer.record(&numbered(1, number));
    }
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(
        (trace.recorded(), trace.torn(), trace.dropped()),
        (1001, 1, 0)
    );
    assert_eq!((trace.readable(), trace.lost()), (62, 938));
    assert_eq!(numbers(&trace), (938..1000).collect::<Vec<_>>());
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn events_of_a_chunk_that_was_taken_and_not_begun_are_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    for number in 0..70 {
        writer.record(&numbered(1, number));
    }
    // A thread took chunk 6 and was killed: event 6 is still in it.
    chunk(&writer, 6).store(layout::Chunk::Open(1).word(), Ordering::Relaxed);
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(numbers(&trace), (6..70).collect::<Vec<_>>());
    assert_eq!(
        (trace.recorded(), trace.readable(), trace.lost()),
        (70, 64, 6)
    );
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn a_thread_that_pauses_keeps_its_events_and_goes_on_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &chunked()).unwrap();
    for number in 0..2 {
        writer.record(&numbered(1, number));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| (2..5000).for_each(|number| writer.record(&numbered(2, number))));
    });
    writer.record(&numbered(1, 5000));
    let trace = Trace::open(writer.path()).unwrap();
    let kept = numbers(&trace);
    assert_eq!(kept[..2], [0, 1]);
    // All the other slots but the one that is still unused in the paused thread's chunk.
    assert_eq!(kept[2..], (5001 - 1021..5001).collect::<Vec<_>>());
    assert_eq!(
        (trace.recorded(), trace.torn(), trace.dropped()),
        (5001, 0, 0)
    );
    assert!(trace.has_wrapped());
    let last = trace.events().last().unwrap();
    assert_eq!((last.event.thread, last.ticket), (1, 5000));
}

#[test]
fn threads_that_end_close_their_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &chunked()).unwrap();
    for thread in 0..1000 {
        std::thread::scope(|scope| {
            let writer = &writer;
            // Joined, unlike what a scope waits for, when all of its end has run.
            let number = u64::from(thread);
            let handle = scope.spawn(move || writer.record(&numbered(thread, number)));
            handle.join().unwrap();
        });
    }
    assert_eq!(open_chunks(&writer), 0);
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(
        (trace.recorded(), trace.torn(), trace.dropped()),
        (1000, 0, 0)
    );
    assert_eq!(numbers(&trace), (744..1000).collect::<Vec<_>>());
    assert!(
        trace.has_wrapped(),
        "although 1,000 events are fewer than 1,024 slots"
    );
}

#[test]
fn one_thread_and_two_traces() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let create = |name| Writer::create(&dir.path().join(name), &chunked()).unwrap();
            let (first, second) = (create("a.trace"), create("b.trace"));
            for number in 0..=100 {
                first.record(&numbered(1, number));
                if number % 3 == 0 {
                    second.record(&numbered(2, number));
                }
            }
            for (writer, count) in [(&first, 101), (&second, 34)] {
                let trace = Trace::open(writer.path()).unwrap();
                assert_eq!((trace.recorded(), trace.readable()), (count, count));
                assert!(numbers(&trace).is_sorted());
            }
            assert_eq!(open_chunks(&second), 0);
            assert_eq!(open_chunks(&first), 1);
            // The chunk that this thread holds goes with its trace, and another trace may get its place.
            drop(first);
            let third = create("c.trace");
            third.record(&numbered(3, 0));
            drop(third);
            second.record(&numbered(2, 100));
            assert_eq!(Trace::open(second.path()).unwrap().recorded(), 35);
            drop(second);
        });
    });
}

/// Records before and after a child is forked that ends; returns the child's exit status, or a
/// number beyond those if the chunk was closed meanwhile.
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
#[cfg_attr(miri, ignore = "no fork under Miri")]
fn a_thread_that_ends_in_a_forked_child_does_not_close_the_parents_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &chunked()).unwrap();
    let (mut thread, mut status) = (0, std::ptr::null_mut());
    let argument = std::ptr::from_ref(&writer).cast_mut().cast();
    // SAFETY: the pointers are to locals that outlive the thread, which is joined here.
    unsafe {
        let null = std::ptr::null();
        assert_eq!(
            libc::pthread_create(&mut thread, null, ends_in_a_forked_child, argument),
            0
        );
        assert_eq!(libc::pthread_join(thread, &mut status), 0);
    }
    assert_eq!(
        status.addr(),
        0,
        "the child ended by itself and closed nothing"
    );
    assert_eq!(
        chunk(&writer, 0).load(Ordering::Relaxed),
        layout::Chunk::Closed(2).word()
    );
    assert_eq!(numbers(&Trace::open(writer.path()).unwrap()), [0, 1]);
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
    /// Threads that each record a number of events, end, and start again: every event is accounted for.
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
    // One block that goes around: the thread that frees it does so under the lock, as the pool does, and the thread
    // that gets it records that after the lock.
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
fn facts_survive_every_letter() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        rank: Some(7),
        ..small()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    writer.fact("odd\tkey", "a\\b\tc\nd 'é'");
    writer.fact("hook", "cuMemAlloc_v2");
    writer.fact("hook", "cuMemFree_v2");
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.fact("odd\tkey").as_deref(), Some("a\\b\tc\nd 'é'"));
    assert_eq!(trace.fact("pid"), Some(std::process::id().to_string()));
    assert_eq!(trace.fact("rank").as_deref(), Some("7"));
    let hooks = trace
        .facts()
        .into_iter()
        .filter(|(key, _)| key == "hook")
        .count();
    assert_eq!((hooks, trace.facts_cut()), (2, 0));
}

#[test]
fn facts_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    let long = "é".repeat(10_000);
    for _ in 0..100 {
        writer.fact("long", &long);
    }
    writer.fact("short", "still fits");
    writer.record(&numbered(1, 1));
    let trace = Trace::open(writer.path()).unwrap();
    let longs: Vec<_> = trace
        .facts()
        .into_iter()
        .filter(|(key, _)| key == "long")
        .collect();
    assert_eq!(longs[0].1, format!("{}…", "é".repeat(facts::VALUE_MAX / 2)));
    assert_eq!(longs.len() as u64 + trace.facts_cut(), 100);
    assert!(trace.facts_cut() > 0);
    assert_eq!(trace.fact("short").as_deref(), Some("still fits"));
    assert_eq!(
        trace.events().count(),
        1,
        "the facts did not run into the ring"
    );
}

#[test]
fn counters_have_names_and_values() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        counters: &["hits", "reserved"],
        ..small()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    writer.count(0, 2);
    writer.count(0, 3);
    writer.set(1, 1 << 40);
    writer.set(64, 1);
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(
        trace.counters(),
        [("hits".to_string(), 5), ("reserved".to_string(), 1 << 40)]
    );
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

#[test]
fn a_length_that_no_file_has_is_an_error() {
    let file = tempfile::tempfile().unwrap();
    let error = create::set_length(&file, 1 << 62).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::EFBIG)), "{error}");
    create::write_zeros(&file, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
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

/// How many events each thread of a child has recorded, in memory that outlives it: a file beside
/// the trace.
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

/// Not a test of its own: what the tests below run as another process.
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
        "fail" => assert_eq!(created.unwrap_err().raw_os_error(), Some(libc::EFBIG)),
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

#[test]
fn a_killed_process_leaves_whole_records_and_exact_counts() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let path = dir.path().join(format!("{round}.trace"));
        let bytes = [4096, 64 << 10, 256 << 10, 16 << 20][round as usize % 4];
        let counts = counts(&path);
        let mut command = child("write", &path);
        let mut process = command
            .env("GPUSHIM_TEST_BYTES", bytes.to_string())
            .spawn()
            .unwrap();
        wait_for_trace(&path, &mut process);
        std::thread::sleep(Duration::from_micros(431 * round));
        process.kill().unwrap();
        process.wait().unwrap();
        let counted: u64 = counts
            .iter()
            .map(|count| count.load(Ordering::Acquire))
            .sum();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.problems(), [] as [&str; 0]);
        let mut last = [None; 4];
        let mut readable = 0;
        for record in trace.events() {
            assert_whole(&record);
            readable += 1;
            let last = &mut last[record.event.thread as usize];
            assert!(
                *last < Some(record.event.address),
                "a thread's events are in its order"
            );
            *last = Some(record.event.address);
        }
        assert_eq!(readable, trace.readable());
        // Each thread had at most one event recorded, or torn, that it did not get to count.
        let uncounted = trace.recorded().checked_sub(counted);
        assert!(uncounted.is_some_and(|events| events <= 4), "{uncounted:?}");
        assert_eq!(
            trace.recorded(),
            trace.readable() + trace.lost() + trace.torn()
        );
        assert!(trace.torn() <= 4, "one for each thread at most");
        assert_eq!(trace.dropped(), 0);
        if !trace.has_wrapped() {
            assert_eq!(trace.lost(), 0);
        }
        assert_eq!(trace.fact("pid"), Some(process.id().to_string()));
    }
}

#[test]
fn a_file_size_limit_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = child("fail", &dir.path().join("a.trace"));
    let limit = || {
        let limit = libc::rlimit {
            rlim_cur: 1 << 20,
            rlim_max: 1 << 20,
        };
        // SAFETY: the pointer is to a local rlimit.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        Ok(())
    };
    // SAFETY: setrlimit is async-signal-safe.
    let status = unsafe { command.pre_exec(limit) }.status().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
