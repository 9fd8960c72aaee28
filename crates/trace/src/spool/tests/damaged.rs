//! Spools that are torn, beyond their limit, or of an earlier form.

use super::*;

/// Writes the frames of a copied trace, as of a process that ended long ago: a reader does not wait
/// for the rest of them.
fn leave(path: &Path, frames: &[u8]) {
    let begin = mapped(path);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(begin).unwrap();
    file.write_all_at(frames, begin).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
}

/// Copies a trace beside itself; returns its path and its frames.
fn copied(trace: &Path) -> (PathBuf, Vec<u8>) {
    let copy = trace.with_extension("copy");
    fs::copy(trace, &copy).unwrap();
    let frames = fs::read(&copy).unwrap().split_off(mapped(trace) as usize);
    (copy, frames)
}

/// Makes a trace in a folder whose spool has this many parts of 1,000 events.
fn spooled(folder: &Path, parts: u64) -> Writer {
    let writer = create(&folder.join("a.trace"), 64 << 10);
    let spooler = Spooler::start(&writer, options()).unwrap();
    for part in 0..parts {
        (part * 1000..part * 1000 + 1000).for_each(|at| writer.record(&numbered(0, at)));
        spooler.flush(SOON).unwrap();
    }
    spooler.stop(SOON).unwrap();
    writer
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
    let (path, whole) = copied(writer.path());
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
        let trace = Trace::open(&path).unwrap();
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
        let trace = Trace::open(&path).unwrap();
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
fn beyond_the_limit_the_oldest_frames_go() {
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
    let (mut events, mut written, mut last) = (0, 0, 0);
    for _ in 0..50 {
        (events..events + 2000).for_each(|at| writer.record(&numbered(0, at)));
        events += 2000;
        let status = spooler.flush(SOON).unwrap();
        let length = writer.path().metadata().unwrap().len();
        assert!(status.bytes <= MAX && length <= mapped(writer.path()) + MAX);
        // More than one frame, of 2,000 events, makes room for another.
        let is_full = written > MAX;
        assert!(!is_full || status.bytes > MAX / 2, "{status:?}");
        assert_eq!(status.events, events);
        written += status.bytes.saturating_sub(last);
        last = status.bytes;
    }
    let status = spooler.stop(SOON).unwrap();
    println!("{status:?}");
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

/// The file's length is read while a frame is being written; the frame is whole soon after.
#[test]
fn a_frame_that_was_whole_after_the_length_was_read_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let writer = spooled(dir.path(), 1);
    let (path, frames) = copied(writer.path());
    let (file, begin) = (fs::File::open(&path).unwrap(), mapped(&path));
    let mut others = 1..frames.len();
    let second = others.find(|at| frames[*at..].starts_with(&frame::MAGIC));
    let first = second.unwrap_or(frames.len());
    for read in [1, frame::HEADER_BYTES, first - 1, first] {
        let (mut problems, mut events) = (Vec::new(), 0);
        let found = scan::scan(
            &file,
            begin..begin + read as u64,
            writer.wall_ns(),
            &mut frame::Budget::new(),
            &mut problems,
            |_, _, length| events += length,
        );
        assert_eq!(problems, Vec::<String>::new(), "{read}");
        assert_eq!((found.unwrap().len(), events > 0), (1, true), "{read}");
    }
}

/// A frame that replaces older ones seldom takes exactly their room.
#[test]
fn any_number_of_zeros_between_frames_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let writer = spooled(dir.path(), 4);
    let (path, frames) = copied(writer.path());
    let second = (1..).find(|at| frames[*at..].starts_with(&frame::MAGIC));
    let (first, rest) = frames.split_at(second.unwrap());
    for zeros in (0..=2 * frame::HEADER_BYTES).chain([4096, 100_000]) {
        let gap = vec![0; zeros];
        leave(&path, &[first, &gap, rest, &gap].concat());
        let trace = Trace::open(&path).unwrap();
        assert_eq!(trace.problems(), [] as [&str; 0], "{zeros} zeros");
        assert_eq!(trace.spooled(), 4000, "{zeros} zeros");
        assert_eq!(numbers(&trace, 1), [(0..4000).collect::<Vec<_>>()]);
    }
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
fn files_beside_a_trace_are_its_spool_if_it_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let writer = spooled(dir.path(), 4);
    let (path, frames) = copied(writer.path());
    let half = frames.len() / 2;
    let half = (half..).find(|at| frames[*at..].starts_with(&frame::MAGIC));
    let (first, second) = frames.split_at(half.unwrap());
    let beside = |number: &str| PathBuf::from(format!("{}.spool{number}", path.display()));
    leave(&path, &[]);
    for (number, content) in [("", first), (".7", second), (".x", b"no number")] {
        fs::write(beside(number), content).unwrap();
    }
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!(trace.spooled(), 4000);
    assert_eq!(numbers(&trace, 1), [(0..4000).collect::<Vec<_>>()]);
    leave(&path, &frames);
    fs::write(beside(""), "of no use").unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.problems().len(), trace.spooled()), (0, 4000));
    // Frames of another trace are left out.
    leave(&path, &[]);
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&7_u64.to_le_bytes(), 56).unwrap();
    fs::write(beside(""), first).unwrap();
    let problems = Trace::open(&path).unwrap().problems().join("; ");
    assert!(problems.contains("belong to another trace"), "{problems}");
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
    let end = fs::File::options().append(true).open(writer.path());
    std::io::Write::write_all(&mut end.unwrap(), &file).unwrap();
    let trace = Trace::open(writer.path()).unwrap();
    let found: Vec<u64> = trace.events().map(|record| record.event.address).collect();
    assert_eq!(found.len(), 300);
    assert!(found.is_sorted());
    assert_eq!(trace.problems(), [] as [&str; 0]);
}
