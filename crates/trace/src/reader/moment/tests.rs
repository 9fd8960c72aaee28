use std::collections::HashSet;
use std::fs::OpenOptions;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::*;
use crate::layout::{Chunk, Slot};
use crate::spool::{SpoolOptions, Spooler};
use crate::{Class, Layer, Writer, WriterOptions};

const THREADS: u64 = 4;
/// Blocks of a thread that come and go.
const PLACES: u64 = 97;

fn block(kind: Kind, thread: u64, number: u64) -> Event {
    Event {
        device: (thread % 2) as u8,
        thread: thread as u32,
        address: (thread << 32) + ((number % PLACES) << 12),
        size: 512 + number % PLACES,
        ..Event::new(kind, Class::Device)
    }
}

/// Allocates and frees until `stop` is set.
fn churn(writer: &Writer, thread: u64, rest: Duration, stop: &AtomicBool) {
    let mut live = [false; PLACES as usize];
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let place = &mut live[(number % PLACES) as usize];
        match *place {
            true => drop(writer.record_free(&block(Kind::Free, thread, number))),
            false => writer.record_alloc(&block(Kind::Alloc, thread, number)),
        }
        *place = !*place;
        if number % 64 == 63 {
            std::thread::sleep(rest);
        }
    }
}

fn copy(path: &Path, name: &Path) -> Moment {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(name);
    Trace::copy_moment(path, &file.unwrap()).unwrap()
}

/// Checks that a copy is sound and its counts exact; by how many blocks its events differ from its
/// live table.
fn check(path: &Path, moment: Moment) -> u64 {
    let trace = Trace::open(path).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    assert_eq!(trace.events().count() as u64, trace.readable());
    assert_eq!(
        trace.recorded(),
        trace.readable() + trace.lost() + trace.torn()
    );
    assert!(trace.torn() <= moment.overtaken + THREADS);
    let live = trace.live().unwrap();
    assert!(live.is_complete(), "{live:?}");
    assert_eq!(live.blocks.len() as u64, moment.live);
    let held: HashSet<u64> = live.blocks.iter().map(|one| one.event.address).collect();
    let (mut told, mut made) = (HashSet::new(), HashSet::new());
    for record in trace.events() {
        let address = record.event.address;
        match makes(&record.event) {
            Some(true) => {
                made.insert(address);
                told.insert(address);
            }
            Some(false) => drop(told.remove(&address)),
            None => {}
        }
    }
    let complete = trace.lost() + trace.torn() == 0;
    // Of blocks that were made before the oldest event only the table knows.
    let untold = held.difference(&told);
    let untold = untold.filter(|address| complete || made.contains(*address));
    (told.difference(&held).count() + untold.count()) as u64
}

/// Stops the threads, however a test ends.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies a trace several times while threads write it, and checks each copy: events lost, chunks
/// overtaken.
fn copies(ring: u64, is_spooled: bool, rest: Duration, rounds: usize) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.trace");
    let options = WriterOptions {
        bytes: ring,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&path, &options).unwrap();
    let spooler = is_spooled.then(|| Spooler::start(&writer, SpoolOptions::new()).unwrap());
    let stop = AtomicBool::new(false);
    let mut found = (0, 0);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (writer, stop) = (&writer, &stop);
            scope.spawn(move || churn(writer, thread, rest, stop));
        }
        let _end = AtEnd(&stop);
        for round in 0..rounds {
            std::thread::sleep(Duration::from_millis(30));
            let name = folder.path().join(format!("{round}.trace"));
            let moment = copy(&path, &name);
            let odd = check(&name, moment);
            let copy = Trace::open(&name).unwrap();
            let lost = copy.lost();
            // Only where the oldest events are the lost ones, the others tell what is live.
            let has_gap = moment.overtaken > 0 || copy.spooled() > 0 && lost > 0;
            if !has_gap {
                assert!(odd <= THREADS, "{odd} blocks");
            }
            found = (found.0 + lost, found.1 + moment.overtaken);
        }
    });
    if let Some(spooler) = spooler {
        spooler.stop(Duration::from_secs(5));
    }
    found
}

#[test]
fn of_a_ring_that_has_all_events() {
    let found = copies(64 << 20, false, Duration::from_millis(5), 4);
    assert_eq!(found, (0, 0));
}

#[test]
fn of_a_ring_that_goes_round_between_copies() {
    let (lost, _) = copies(1 << 20, false, Duration::from_millis(2), 8);
    assert!(lost > 0);
}

#[test]
fn of_a_ring_that_goes_round_while_it_is_copied() {
    let (lost, overtaken) = copies(64 << 10, false, Duration::ZERO, 20);
    assert!(lost > 0 && overtaken > 0, "{lost}, {overtaken}");
}

#[test]
fn with_a_spool() {
    copies(1 << 20, true, Duration::from_millis(1), 8);
}

#[test]
fn of_a_process_at_rest_the_copy_is_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (path, name) = (folder.path().join("a.trace"), folder.path().join("b.trace"));
    let options = WriterOptions {
        bytes: 1 << 16,
        ..WriterOptions::default()
    };
    let writer = Writer::create(&path, &options).unwrap();
    writer.fact("framework", "PyTorch");
    for number in 0..2700 {
        writer.record_alloc(&block(Kind::Alloc, number + 1, 1));
        if number % 3 > 0 {
            writer.record_free(&block(Kind::Free, number + 1, 1));
        }
    }
    let mark = writer.intern("a mark");
    writer.record(&Event {
        address: mark.into(),
        ..Event::new(Kind::Mark, Class::Device)
    });
    let moment = copy(&path, &name);
    assert_eq!((moment.live, moment.overtaken), (900, 0));
    let (was, is) = (Trace::open(&path).unwrap(), Trace::open(&name).unwrap());
    assert_eq!(is.problems(), [] as [&str; 0]);
    assert_eq!(is.facts(), was.facts());
    assert_eq!(is.live(), was.live());
    assert_eq!(is.totals(), was.totals());
    assert_eq!(is.totals().unwrap().layer(Layer::Device).live(), 900);
    let counts = |trace: &Trace| [trace.recorded(), trace.readable(), trace.torn()];
    assert_eq!(counts(&is), counts(&was));
    assert!(is.events().eq(was.events()) && is.lost() > 0);
    assert_eq!(is.string(mark).as_deref(), Some("a mark"));
    assert_eq!(is.timeline(), was.timeline());
}

/// A chunk of four slots with events of these numbers and ticks, copied up to a cut: the numbers,
/// the torn ones negative, and the events recorded.
fn up_to(cut: u64, word: Chunk, slots: [(u64, u64); 4]) -> (Vec<i64>, u64) {
    let words = slots.iter().flat_map(|(number, ticks)| {
        let mut record = [0; 8];
        (record[0], record[1]) = (Slot::complete(*number), *ticks);
        record
    });
    let words: Vec<AtomicU64> = words.map(AtomicU64::new).collect();
    let copied = Copied::of(&AtomicU64::new(word.word()), &words, cut);
    let numbers = copied.bytes();
    let numbers = numbers.chunks(64).filter_map(|slot| {
        match Slot::decode(crate::layout::get_u64(slot, 0)?) {
            Slot::Complete(number) => Some(number as i64),
            Slot::Writing(number) => Some(-(number as i64)),
            Slot::Empty => None,
        }
    });
    let Chunk::Closed(recorded) = Chunk::decode(copied.word()) else {
        panic!("a copied chunk is closed");
    };
    (numbers.collect(), recorded)
}

#[test]
fn chunks_at_a_cut() {
    let filled = [(8, 10), (9, 11), (10, 12), (11, 13)];
    assert_eq!(
        up_to(13, Chunk::Closed(12), filled),
        (vec![8, 9, 10, 11], 12)
    );
    assert_eq!(up_to(11, Chunk::Closed(12), filled), (vec![8, 9], 10));
    // All came later: what they overwrote was there.
    assert_eq!(up_to(9, Chunk::Closed(12), filled), (vec![-7], 8));
    // The first events of all.
    let first = [(0, 10), (1, 11), (2, 12), (3, 13)];
    assert_eq!(up_to(9, Chunk::Closed(4), first), (vec![], 0));
    // The next holder has begun, and what it overwrites is still the newest.
    let begun = [(12, 14), (13, 15), (10, 12), (11, 13)];
    assert_eq!(up_to(13, Chunk::Open(12), begun), (vec![10, 11], 12));
    assert_eq!(
        up_to(15, Chunk::Open(12), begun),
        (vec![12, 13, 10, 11], 14)
    );
    // A holder ended early, and its events were overwritten: the last of them is torn.
    let short = [(9, 14), (10, 15), (6, 5), (7, 6)];
    assert_eq!(up_to(13, Chunk::Open(9), short), (vec![-8, 6, 7], 9));
}
