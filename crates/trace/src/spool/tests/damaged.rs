//! Spools that are torn, beyond their limit, or not alone at their place.

use super::*;

/// Writes a file as one of a process that ended long ago: a reader does not wait for the rest of
/// it.
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

/// True if frames begin or end at this byte.
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
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    assert_eq!(
        source.map(std::io::Error::kind),
        Some(std::io::ErrorKind::AlreadyExists)
    );
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
