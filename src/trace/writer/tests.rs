//! What the writer leaves behind, read back through the reader.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::trace::{Class, Cost, Kind, Record, Trace, flags};

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
    assert_eq!(meta.len(), WriterOptions::FIXED_BYTES + 4096);
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

#[test]
fn a_stalled_writer_costs_its_slot_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    // Ticket 5 was taken by a thread that never gets to publish; ticket 6 by one that never began.
    for number in 0..5 {
        writer.record(&numbered(1, number));
    }
    let slot = writer
        .word(RING_AT as usize + 5 * layout::RECORD_BYTES)
        .unwrap();
    slot.store(layout::Slot::writing(5), Ordering::Relaxed);
    writer
        .word(CURSOR_AT as usize)
        .unwrap()
        .store(7, Ordering::Relaxed);
    for number in 7..100 {
        writer.record(&numbered(1, number));
    }
    let trace = Trace::open(writer.path()).unwrap();
    // 100 tickets on 64 slots: slot 5 is torn, which also cost ticket 69.
    assert_eq!(
        (trace.recorded(), trace.torn(), trace.dropped()),
        (100, 1, 1)
    );
    assert_eq!((trace.readable(), trace.lost()), (63, 36));
    let tickets: Vec<_> = trace.events().map(|record| record.ticket).collect();
    assert_eq!(
        tickets,
        (36..100).filter(|ticket| *ticket != 69).collect::<Vec<_>>()
    );
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn an_event_whose_successor_never_came_is_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    for number in 0..70 {
        writer.record(&numbered(1, number));
    }
    // Two threads took tickets 70 and 71 and were killed: tickets 6 and 7 are still in their slots.
    writer
        .word(CURSOR_AT as usize)
        .unwrap()
        .store(72, Ordering::Relaxed);
    let trace = Trace::open(writer.path()).unwrap();
    let tickets: Vec<_> = trace.events().map(|record| record.ticket).collect();
    assert_eq!(tickets, (6..70).collect::<Vec<_>>());
    assert_eq!(
        (trace.recorded(), trace.readable(), trace.lost()),
        (72, 64, 8)
    );
}

#[test]
fn threads_and_a_reader_at_once() {
    const EACH: u64 = 50_000;
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        bytes: 64 << 10,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
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
    assert!(trace.readable() + trace.dropped() >= 1024);
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
fn space_that_is_not_there_is_an_error() {
    let file = tempfile::tempfile().unwrap();
    let error = create::reserve(&file, 1 << 62).unwrap_err();
    assert!(
        matches!(error.raw_os_error(), Some(libc::EFBIG | libc::ENOSPC)),
        "{error}"
    );
    create::write_zeros(&file, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
}

/// Runs `child_process` of this test binary.
fn child(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "trace::writer::tests::child_process",
            "--nocapture",
        ])
        .env("GPUSHIM_TEST_ROLE", role)
        .env("GPUSHIM_TEST_PATH", path)
        .stdout(Stdio::null());
    command
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
    let options = WriterOptions {
        bytes: 1 << 20,
        ..WriterOptions::default()
    };
    let created = Writer::create(Path::new(&path), &options);
    match role.as_str() {
        "write" => {
            let writer = created.unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let writer = &writer;
                    scope.spawn(move || {
                        for number in 0_u64.. {
                            writer.record(&numbered(thread, number));
                        }
                    });
                }
            });
        }
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
    for round in 0..15 {
        let path = dir.path().join(format!("{round}.trace"));
        let mut process = child("write", &path).spawn().unwrap();
        wait_for_trace(&path, &mut process);
        std::thread::sleep(Duration::from_micros(700 * round));
        process.kill().unwrap();
        process.wait().unwrap();
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.problems(), [] as [&str; 0]);
        let mut readable = 0;
        for record in trace.events() {
            assert_whole(&record);
            readable += 1;
        }
        assert_eq!(readable, trace.readable());
        assert_eq!(
            trace.recorded(),
            trace.readable() + trace.lost() + trace.torn()
        );
        assert!(trace.torn() <= 4, "one for each thread at most");
        if !trace.has_wrapped() {
            assert!(trace.lost() <= 4, "one for each thread at most");
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
