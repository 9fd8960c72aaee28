//! Spools written and read back: whole, torn, rotated, stopped by a full disk, and by SIGKILL.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
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

/// An event whose words follow from one number, one of them as if by chance; of one byte, so that sums
/// count events.
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

/// The numbers of each thread's events, which are whole, each once, and in order.
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
            // A reader comes by while all of it is being written.
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
        // The ring can only have what the spool was too slow for.
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

/// Writes a file as one of a process that ended long ago: a reader does not wait for the rest of it.
fn leave(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
}

#[test]
fn a_spool_torn_at_any_byte_costs_only_what_the_ring_has_lost() {
    let dir = tempfile::tempdir().unwrap();
    // The ring holds 1,024 events.
    let writer = create(&dir.path().join("a.trace"), 64 << 10);
    let spooler = Spooler::start(&writer, options()).unwrap();
    let mut frames = Vec::new();
    for part in 0..15 {
        (part * 200..(part + 1) * 200).for_each(|at| writer.record(&numbered(0, at)));
        frames.push(spooler.flush(SOON).unwrap());
    }
    spooler.stop(SOON).unwrap();
    assert_eq!(frames.last().unwrap().events, 3000);
    let path = segment_path(writer.path(), 0);
    let whole = fs::read(&path).unwrap();
    assert_eq!(
        numbers(&Trace::open(writer.path()).unwrap(), 1),
        [(0..3000).collect::<Vec<_>>()]
    );
    // The last frame may be of fewer than 200 events, if the thread came by itself.
    for cut in 0..=whole.len() {
        // Every byte of the last two frames, some of the others.
        if cut < frames[12].bytes as usize && cut % 97 != 0 {
            continue;
        }
        leave(&path, &whole[..cut]);
        let trace = Trace::open(writer.path()).unwrap();
        assert_eq!(trace.recorded(), 3000);
        let found = &numbers(&trace, 1)[0];
        assert_eq!(found.len() as u64, trace.readable());
        assert!(
            found.ends_with(&(1976..3000).collect::<Vec<_>>()),
            "the ring has them"
        );
        let spooled = trace.spooled();
        assert_eq!(found[..spooled as usize], (0..spooled).collect::<Vec<_>>());
        assert_eq!(trace.lost(), 1976_u64.saturating_sub(spooled));
        let boundary = trace.problems().is_empty();
        assert_eq!(
            boundary,
            is_boundary(&whole, cut),
            "{cut}: {:?}",
            trace.problems()
        );
    }
    // A byte changed anywhere in the third last frame, where the ring no longer has all events.
    for at in frames[3].bytes as usize..frames[4].bytes as usize {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        leave(&path, &damaged);
        let trace = Trace::open(writer.path()).unwrap();
        assert_eq!(trace.problems().len(), 1, "{:?}", trace.problems());
        let found = &numbers(&trace, 1)[0];
        assert_eq!(
            (trace.recorded(), trace.readable() + trace.lost()),
            (3000, 3000)
        );
        assert!(trace.lost() > 0 && trace.lost() <= 200);
        assert!(found.starts_with(&(0..800).collect::<Vec<_>>()));
        assert!(found.ends_with(&(1000..3000).collect::<Vec<_>>()));
    }
}

/// Whether frames begin or end at this byte.
fn is_boundary(whole: &[u8], cut: usize) -> bool {
    cut == whole.len() || whole[cut..].starts_with(&frame::MAGIC)
}

#[test]
fn beyond_the_limit_the_oldest_segments_go() {
    const MAX: u64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir.path().join("a.trace"), 1 << 20);
    let limits = SpoolLimits {
        max_bytes: Some(MAX),
        floor: 0,
    };
    let spooler = Spooler::start(
        &writer,
        SpoolOptions {
            limits,
            ..options()
        },
    )
    .unwrap();
    let mut events = 0;
    for _ in 0..50 {
        (events..events + 2000).for_each(|at| writer.record(&numbered(0, at)));
        events += 2000;
        let status = spooler.flush(SOON).unwrap();
        let files = segments(writer.path());
        let total: u64 = files
            .iter()
            .map(|(_, path)| path.metadata().unwrap().len())
            .sum();
        assert!(
            total <= MAX && files.len() <= 8,
            "{total} bytes in {files:?}"
        );
        assert_eq!((status.events, status.bytes), (events, total));
    }
    spooler.stop(SOON).unwrap();
    let files = segments(writer.path());
    assert!(files[0].0 > 3, "{files:?}");
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!(
        (trace.recorded(), trace.lost() + trace.readable()),
        (events, events)
    );
    assert!(trace.lost() > 0 && trace.has_wrapped());
    assert_eq!(
        numbers(&trace, 1),
        [(trace.lost()..events).collect::<Vec<_>>()]
    );
    // More than the ring alone would have kept.
    assert!(trace.spooled() > 0);
    // The timeline knows the whole run all the same.
    let timeline = trace.timeline();
    assert!(timeline.is_complete);
    let requested = timeline.devices[0].get(Series::Requested);
    assert_eq!(
        (requested[0].min, requested.last().unwrap().max),
        (0, events)
    );
}

/// What a spool says when it stops, and how often.
fn told() -> (Arc<Mutex<Vec<String>>>, Tell) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let teller = Arc::clone(&told);
    (
        told,
        Box::new(move |why| teller.lock().push(why.to_string())),
    )
}

#[test]
fn a_full_disk_stops_the_spool_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir.path().join("a.trace"), 1 << 20);
    let (told, stopped) = told();
    let limits = SpoolLimits {
        max_bytes: None,
        floor: 1 << 60,
    };
    let spooler = Spooler::start(
        &writer,
        SpoolOptions {
            limits,
            stopped,
            ..options()
        },
    )
    .unwrap();
    for part in 0..3 {
        (part * 1000..part * 1000 + 1000).for_each(|at| writer.record(&numbered(0, at)));
        spooler.flush(SOON).unwrap();
    }
    let status = spooler.stop(SOON).unwrap();
    assert_eq!(
        (status.events, status.unwritten, status.bytes),
        (0, 3000, 0)
    );
    assert_eq!(told.lock().len(), 1, "{told:?}");
    assert!(status.stopped.unwrap().contains("free"));
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!((trace.readable(), trace.spooled()), (3000, 0));
    assert_eq!(
        trace.timeline().devices[0]
            .get(Series::Requested)
            .last()
            .unwrap()
            .max,
        3000
    );
}

#[test]
fn what_lies_at_the_place_of_a_spool() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.trace");
    let writer = create(&path, 64 << 10);
    writer.record(&numbered(0, 0));
    Spooler::start(&writer, options())
        .unwrap()
        .stop(SOON)
        .unwrap();
    // The trace goes, its spool stays: it is of no more use, and never taken for another trace's.
    fs::remove_file(&path).unwrap();
    fs::copy(segment_path(&path, 0), segment_path(&path, 7)).unwrap();
    let writer = create(&path, 64 << 10);
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.recorded(), trace.readable()), (0, 0));
    assert_eq!(trace.problems().len(), 2, "{:?}", trace.problems());
    Spooler::start(&writer, options())
        .unwrap()
        .stop(SOON)
        .unwrap();
    assert_eq!(segments(&path).len(), 1);
    assert_eq!(Trace::open(&path).unwrap().problems(), [] as [&str; 0]);
    // A file of another origin is left alone.
    fs::remove_file(segment_path(&path, 0)).unwrap();
    fs::write(
        segment_path(&path, 0),
        "precious, and longer than eight bytes",
    )
    .unwrap();
    let error = Spooler::start(&writer, options()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert!(
        fs::read(segment_path(&path, 0))
            .unwrap()
            .starts_with(b"precious")
    );
}

#[test]
fn frames_that_overlap_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir.path().join("a.trace"), 64 << 10);
    // Frame k has every third event from k on, and one that came very late.
    let mut file = Vec::new();
    let mut frame = Frame::new(1).unwrap();
    for number in 0..3_u64 {
        let mut ticks: Vec<u64> = (0..100).map(|at| at * 3 + number + 10).collect();
        ticks[0] = number + 1;
        let events: Vec<Tailed> = ticks
            .iter()
            .map(|ticks| Tailed {
                words: [*ticks, 1, 0, *ticks, 0, 0, 0],
                number: *ticks,
                chunk: 5000,
            })
            .collect();
        let header = Header {
            trace: writer.wall_ns(),
            number,
            ..Header::default()
        };
        frame.make(header, &events).unwrap();
        file.extend_from_slice(&frame.bytes);
    }
    fs::write(segment_path(writer.path(), 0), &file).unwrap();
    let trace = Trace::open(writer.path()).unwrap();
    let found: Vec<u64> = trace.events().map(|record| record.event.address).collect();
    assert_eq!(found.len(), 300);
    assert!(found.is_sorted());
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

/// Not a test of its own: what the tests below run as another process.
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
        // So slow that the ring of 16,384 events is never lapped before the spooler comes by, even on
        // a busy machine.
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
            // SAFETY: the child calls nothing that another thread's lock could stop, which it checks.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let nothing = spooler.status(SOON).is_none() && spooler.flush(SOON).is_none();
                drop(spooler);
                let mut upkeep = crate::Upkeep::new(&writer, None);
                upkeep.poll_with(&mut |_| panic!("it is the parent's ring"));
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

/// How many events each thread of a child has recorded: in a file beside the trace.
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
