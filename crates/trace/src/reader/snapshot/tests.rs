use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::spool::{SpoolOptions, Spooler};
use crate::{Class, Writer, WriterOptions};

const THREADS: u64 = 4;

fn block(kind: Kind, thread: u64, number: u64) -> Event {
    Event {
        device: (thread % 2) as u8,
        thread: thread as u32,
        address: (thread << 32) + ((number % 97) << 12),
        size: 512 + number % 97,
        ..Event::new(kind, Class::Device)
    }
}

/// Allocates and frees until it is told to stop, up to 97 blocks being live.
fn churn(writer: &Writer, thread: u64, rest: Duration, stop: &AtomicBool) {
    let mut live = [false; 97];
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let place = &mut live[(number % 97) as usize];
        if *place {
            writer.record_free(&block(Kind::Free, thread, number));
        } else {
            writer.record_alloc(&block(Kind::Alloc, thread, number));
        }
        *place = !*place;
        if number % 64 == 63 {
            std::thread::sleep(rest);
        }
    }
}

/// A copy says the same in its events, its live table and its sums; the blocks that were under way.
fn adds_up(path: &Path, made: Snapshot) -> (u64, u64) {
    let trace = Trace::open(path).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    let live = trace.live().unwrap();
    assert_eq!(
        (live.in_flight, live.missed, &live.problems[..]),
        (0, 0, &[] as &[String])
    );
    assert_eq!(live.blocks.len() as u64, made.live);
    let sums = trace.totals().unwrap().layer(Layer::Device);
    let bytes: u64 = live.blocks.iter().map(|block| block.event.size).sum();
    assert_eq!((sums.live(), sums.live_bytes()), (made.live, bytes));
    assert_eq!(trace.recorded(), trace.readable() + trace.lost());
    let mut replayed = HashMap::new();
    for record in trace.events() {
        match makes(&record.event) {
            Some(true) => replayed.insert(record.event.address, record.event),
            Some(false) => replayed.remove(&record.event.address),
            None => None,
        };
    }
    let held: HashMap<u64, Event> = live
        .blocks
        .iter()
        .map(|block| (block.event.address, block.event))
        .collect();
    let odd = |address: &&u64| replayed.contains_key(*address) != held.contains_key(*address);
    // Of what was made before the oldest event only the table knows.
    let odd = replayed.keys().filter(odd).count() as u64
        + if trace.lost() == 0 {
            held.keys().filter(odd).count() as u64
        } else {
            0
        };
    if !path.with_extension("trace.spool").exists() {
        assert_eq!(odd, made.under_way);
    }
    (odd, trace.lost())
}

struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn copies(ring: u64, is_spooled: bool, rounds: usize) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let options = WriterOptions {
        bytes: ring,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&path, &options).unwrap();
    let spooler = is_spooled.then(|| Spooler::start(&writer, SpoolOptions::new()).unwrap());
    let stop = AtomicBool::new(false);
    // In a large ring all of it is to stay; a smaller one has gone round before.
    let is_large = ring > 4 << 20;
    let rest = Duration::from_millis(if is_large { 10 } else { 2 });
    for number in (0..if is_large { 0 } else { 40_000 }).map(|number| number % 97) {
        writer.record_alloc(&block(Kind::Alloc, 9, number));
        writer.record_free(&block(Kind::Free, 9, number));
    }
    let found = std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (writer, stop) = (&writer, &stop);
            scope.spawn(move || churn(writer, thread, rest, stop));
        }
        // However this ends, the threads do.
        let _end = AtEnd(&stop);
        let mut found = (0, 0);
        for round in 0..rounds {
            std::thread::sleep(Duration::from_millis(20));
            let copy = folder.path().join(format!("{round}.trace"));
            let made = {
                let file = File::options()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .open(&copy)
                    .unwrap();
                Trace::snapshot(&path, &file, &copy)
            };
            let (odd, lost) = adds_up(&copy, made.unwrap());
            found = (found.0 + odd, found.1 + lost);
        }
        found
    });
    if let Some(spooler) = spooler {
        spooler.stop(Duration::from_secs(5));
    }
    found
}

#[test]
fn while_threads_go_on_a_copy_adds_up() {
    let (odd, lost) = copies(16 << 20, false, 4);
    assert!(odd <= 8 * THREADS, "{odd}");
    assert_eq!(lost, 0);
    println!("{odd} under way in 4 copies");
}

#[test]
fn of_a_ring_that_goes_round_too() {
    let (odd, lost) = copies(4 << 20, false, 8);
    assert!(odd <= 8 * THREADS, "{odd}");
    assert!(lost > 0, "it never went round");
}

#[test]
fn and_with_a_spool() {
    let (odd, lost) = copies(4 << 20, true, 8);
    assert!(odd <= 8 * THREADS, "{odd}");
    println!("{odd} under way, {lost} events lost in 8 copies");
}

#[test]
fn a_copy_of_a_process_at_rest_is_what_the_trace_is() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("a.trace"), folder.path().join("b.trace"));
    let writer = Writer::create(
        &path,
        &WriterOptions {
            bytes: 1 << 16,
            ..WriterOptions::default()
        },
    )
    .unwrap();
    writer.fact("framework", "PyTorch");
    for number in 0..2700 {
        writer.record_alloc(&block(Kind::Alloc, number + 1, 1));
        if number % 3 > 0 {
            writer.record_free(&block(Kind::Free, number + 1, 1));
        }
    }
    let name = writer.intern("a mark");
    writer.record(&Event {
        address: name.into(),
        ..Event::new(Kind::Mark, Class::Device)
    });
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&copy)
        .unwrap();
    let made = Trace::snapshot(&path, &file, &copy).unwrap();
    assert_eq!(made.under_way, 0);
    let (was, is) = (Trace::open(&path).unwrap(), Trace::open(&copy).unwrap());
    assert_eq!(is.problems(), [] as [&str; 0]);
    assert_eq!(is.facts(), was.facts());
    assert_eq!(is.live(), was.live());
    assert_eq!(is.totals(), was.totals());
    let counts = |trace: &Trace| {
        [
            trace.recorded(),
            trace.readable(),
            trace.lost(),
            trace.torn(),
        ]
    };
    assert_eq!(counts(&is), counts(&was));
    assert!(is.events().eq(was.events()) && is.readable() > 1000);
    assert_eq!(is.string(name).as_deref(), Some("a mark"));
    assert_eq!(is.timeline(), was.timeline());
}
