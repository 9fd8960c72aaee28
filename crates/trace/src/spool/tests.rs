//! Spools written and read back: whole, torn, in several rounds, stopped by a full disk, and by SIGKILL.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::frame::{Frame, Header};
use super::*;
use crate::tail::Tailed;
use crate::{Class, Event, Kind, Series, Trace, Writer, WriterOptions};

mod pytorch;

mod damaged;

const SOON: Duration = Duration::from_secs(60);

fn options() -> SpoolOptions {
    SpoolOptions {
        limits: SpoolLimits {
            max_bytes: None,
            floor: 0,
        },
        ..SpoolOptions::new()
    }
}

/// Returns an event whose words follow from one number, one of them pseudo-random. Its size is one
/// byte, so that sums count events.
fn numbered(thread: u32, number: u64) -> Event {
    // As in splitmix64 (Steele, Lea, Flood 2014).
    let mixed = (number ^ number >> 30)
        .wrapping_add(1)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    Event {
        thread,
        device: 0,
        address: number,
        size: 1,
        extra: [mixed, 1],
        ..Event::new(Kind::Alloc, Class::Device)
    }
}

fn create(path: &Path, bytes: u64) -> Writer {
    let options = WriterOptions {
        bytes,
        ..WriterOptions::default()
    };
    Writer::create(path, &options).unwrap()
}

/// Returns the bytes of a trace's mapped part.
fn mapped(trace: &Path) -> u64 {
    Trace::open_ring(trace).unwrap().header().file_bytes
}

/// Returns the numbers of each thread's events. Checks that each event is whole, found once, and in
/// order.
fn numbers(trace: &Trace, threads: usize) -> Vec<Vec<u64>> {
    let mut numbers = vec![Vec::new(); threads];
    let (mut last, mut count) = (0, 0);
    for (record, place) in trace.events().zip(trace.lost() + trace.torn()..) {
        let event = record.event;
        assert_eq!(event, numbered(event.thread, event.address));
        assert_eq!(record.ticket, place);
        assert!(record.ns >= last);
        last = record.ns;
        count += 1;
        let numbers = &mut numbers[event.thread as usize];
        assert!(
            numbers.last() < Some(&event.address),
            "each once, in the thread's order"
        );
        numbers.push(event.address);
    }
    assert_eq!(count, trace.readable());
    numbers
}

#[test]
fn every_event_of_four_threads_is_found_or_counted() {
    const EACH: u64 = 300_000;
    for bytes in [64 << 10, 1 << 20, 64 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let writer = create(&dir.path().join("a.trace"), bytes);
        let spooler = Spooler::start(&writer, options()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let writer = &writer;
                scope.spawn(move || (0..EACH).for_each(|at| writer.record(&numbered(thread, at))));
            }
            // A reader opens the trace while it is being written.
            for _ in 0..5 {
                let trace = Trace::open(writer.path()).unwrap();
                assert_eq!(trace.problems(), [] as [&str; 0]);
                assert!(trace.readable() + trace.lost() + trace.torn() == trace.recorded());
                trace.events().for_each(|record| {
                    assert_eq!(
                        record.event,
                        numbered(record.event.thread, record.event.address)
                    );
                });
            }
        });
        let status = spooler.stop(SOON).unwrap();
        assert_eq!((status.unwritten, &status.stopped), (0, &None));
        let trace = Trace::open(writer.path()).unwrap();
        assert_eq!(trace.problems(), [] as [&str; 0]);
        assert_eq!((trace.recorded(), trace.torn()), (4 * EACH, 0));
        assert_eq!(status.events + status.missed + trace.dropped(), 4 * EACH);
        assert_eq!(trace.spooled(), status.events);
        // The ring can only have events for which the spool was too slow.
        assert!(trace.readable() >= status.events);
        assert_eq!(trace.readable() + trace.lost(), 4 * EACH);
        let found: usize = numbers(&trace, 4).iter().map(Vec::len).sum();
        assert_eq!(found as u64, trace.readable());
        let timeline = trace.timeline();
        let end = timeline.devices[0]
            .get(Series::Requested)
            .last()
            .unwrap()
            .max;
        if status.missed == 0 && trace.dropped() == 0 {
            assert_eq!((trace.lost(), end, timeline.gaps), (0, 4 * EACH, 0));
            assert!(!trace.has_wrapped());
        } else {
            assert!(end < 4 * EACH && timeline.gaps > 0);
        }
        println!(
            "{bytes}: {status:?}, {} in the ring",
            trace.readable() - trace.spooled()
        );
    }
}

/// Returns the messages of a spool that stops, and the function that collects them.
fn told() -> (Arc<Mutex<Vec<String>>>, Tell) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    (
        told,
        Box::new(move |why| teller.lock().push(why.to_string())),
    )
}

/// Not a test by itself: the code that the tests below run as another process.
#[test]
fn child_process() {
    let (Ok(role), Some(path)) = (
        std::env::var("GPUSHIM_TEST_SPOOL"),
        std::env::var_os("GPUSHIM_TEST_PATH"),
    ) else {
        return;
    };
    let path = Path::new(&path);
    let writer = create(path, 1 << 20);
    let (told, stopped) = told();
    let spooler = Spooler::start(
        &writer,
        SpoolOptions {
            stopped,
            ..options()
        },
    )
    .unwrap();
    match role.as_str() {
        // So slow that the ring of 16,384 events is never lapped before the spooler's next poll,
        // even on a busy machine.
        "killed" => {
            let counts = counts(path);
            std::thread::scope(|scope| {
                for (thread, count) in (0..).zip(&counts[..3]) {
                    let writer = &writer;
                    scope.spawn(move || {
                        for number in 0.. {
                            writer.record(&numbered(thread, number));
                            count.store(number + 1, Ordering::Release);
                            if number % 50 == 49 {
                                std::thread::sleep(Duration::from_millis(3));
                            }
                        }
                    });
                }
            });
        }
        // Under a limit of the size of files.
        "limited" => {
            for number in 0..600_000 {
                writer.record(&numbered(0, number));
                if number % 2000 == 0 {
                    spooler.flush(SOON).unwrap();
                }
            }
            let status = spooler.stop(SOON).unwrap();
            assert!(
                status.events > 1000 && status.unwritten > 1000,
                "{status:?}"
            );
            assert_eq!(status.events + status.unwritten + status.missed, 600_000);
            assert_eq!(told.lock().len(), 1);
        }
        "forks" => {
            writer.record(&numbered(0, 0));
            spooler.flush(SOON).unwrap();
            // SAFETY: the child calls nothing that another thread's lock could stop, which it
            // checks.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let nothing = spooler.status(SOON).is_none() && spooler.flush(SOON).is_none();
                drop(spooler);
                let mut follower = crate::TimelineFollower::new(&writer, None);
                follower.poll_with(&mut |_| panic!("it is the parent's ring"));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(if nothing { 0 } else { 1 }) };
            }
            let mut status = -1;
            // SAFETY: the pointer is to a local integer.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
            writer.record(&numbered(0, 1));
            assert_eq!(spooler.stop(SOON).unwrap().events, 2);
        }
        other => panic!("no role {other}"),
    }
}

fn child(role: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "spool::tests::child_process", "--nocapture"])
        .env("GPUSHIM_TEST_SPOOL", role)
        .env("GPUSHIM_TEST_PATH", path)
        .stdout(Stdio::null());
    command
}

/// Returns the number of events that each thread of a child has recorded, in a file beside the
/// trace.
fn counts(trace: &Path) -> &'static [AtomicU64] {
    let path = trace.with_extension("counts");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .unwrap();
    file.set_len(4096).unwrap();
    let map = memmap2::MmapOptions::new()
        .len(4096)
        .map_raw(&file)
        .unwrap();
    let map = Box::leak(Box::new(map));
    // SAFETY: the mapping is page-aligned, larger, never unmapped, and only accessed atomically.
    unsafe { std::slice::from_raw_parts(map.as_ptr().cast::<AtomicU64>(), 4) }
}

#[test]
fn whatever_was_recorded_before_a_kill_is_found() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..6_u64 {
        let path = dir.path().join(format!("{round}.trace"));
        let counts = counts(&path);
        let mut process = child("killed", &path).spawn().unwrap();
        // From the first lap of the ring on.
        let total = || {
            counts
                .iter()
                .map(|count| count.load(Ordering::Acquire))
                .sum::<u64>()
        };
        let begin = Instant::now();
        while total() < 10_000 + round * 5000 {
            assert!(begin.elapsed() < SOON, "{:?}", process.try_wait());
            std::thread::sleep(Duration::from_micros(997));
        }
        process.kill().unwrap();
        process.wait().unwrap();
        let trace = Trace::open(&path).unwrap();
        assert!(trace.problems().len() <= 1, "{:?}", trace.problems());
        let found = numbers(&trace, 3);
        assert_eq!((trace.lost(), trace.dropped()), (0, 0));
        for (found, count) in found.iter().zip(counts) {
            let count = count.load(Ordering::Acquire);
            // At most the one event that it had no time to count.
            assert!(found.len() as u64 - count <= 1);
            assert_eq!(*found, (0..found.len() as u64).collect::<Vec<_>>());
        }
        let timeline = trace.timeline();
        assert!(timeline.is_complete);
        let end = timeline.devices[0]
            .get(Series::Requested)
            .last()
            .unwrap()
            .max;
        assert_eq!(end, trace.readable());
    }
}

#[test]
fn a_file_size_limit_stops_the_spool_and_not_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace");
    let mut command = child("limited", &path);
    let options = WriterOptions {
        bytes: 1 << 20,
        ..WriterOptions::default()
    };
    // Enough for the trace itself.
    let limit = options.file_bytes() + (1 << 16);
    let limit = move || {
        let limit = libc::rlimit {
            rlim_cur: limit,
            rlim_max: limit,
        };
        // SAFETY: the pointer is to a local rlimit.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) };
        Ok(())
    };
    // SAFETY: setrlimit is async-signal-safe.
    let status = unsafe { command.pre_exec(limit) }.status().unwrap();
    assert!(status.success(), "{status}");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!(trace.recorded(), 600_000);
    let found = &numbers(&trace, 1)[0];
    let spooled = trace.spooled();
    assert_eq!(found[..spooled as usize], (0..spooled).collect::<Vec<_>>());
    assert!(found.ends_with(&(600_000 - 16_384..600_000).collect::<Vec<_>>()));
}

#[test]
fn a_forked_child_leaves_the_spool_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace");
    let status = child("forks", &path).status().unwrap();
    assert!(status.success(), "{status}");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(numbers(&trace, 1), [vec![0, 1]]);
    assert_eq!((trace.spooled(), trace.lost()), (2, 0));
}
