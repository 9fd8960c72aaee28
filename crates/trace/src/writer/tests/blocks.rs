//! The live table and the totals, written by the writer and read by the reader.

use std::collections::BTreeMap;
use std::sync::Barrier;

use super::*;
use crate::{LiveBlock, LiveTable, Removed, Sums, Totals};

fn block(kind: Kind, class: Class, address: u64, size: u64) -> Event {
    Event {
        address,
        size,
        device: 1,
        stack: 9,
        ..Event::new(kind, class)
    }
}

/// Returns the live blocks and the totals of a sound file.
fn read(path: &Path) -> (LiveTable, Totals) {
    let trace = Trace::open(path).unwrap();
    assert_eq!(trace.problems(), [] as [&str; 0]);
    let live = trace.live().unwrap();
    assert_eq!(live.problems, [] as [&str; 0]);
    (live, trace.totals().unwrap())
}

fn create(dir: &tempfile::TempDir) -> Writer {
    Writer::create(&dir.path().join("a.trace"), &small()).unwrap()
}

#[test]
fn a_block_is_live_from_its_allocation_to_its_free() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir);
    let event = Event {
        flags: flags::GROWN,
        extra: [5, Cost::pack(77, 1024)],
        ..block(Kind::Alloc, Class::PoolAsync, 1 << 40, 600)
    };
    writer.record_alloc(&event);
    // The same address in another layer is another block.
    let tensor = block(Kind::TensorAlloc, Class::Tensor, 1 << 40, 500);
    writer.record_alloc(&tensor);
    let (live, totals) = read(writer.path());
    let events: Vec<_> = Trace::open(writer.path())
        .unwrap()
        .events()
        .map(|record| LiveBlock {
            ns: record.ns,
            event: record.event,
        })
        .collect();
    assert_eq!(live.blocks, events, "with the time of its event");
    assert!(live.is_complete());
    // Half of them for blocks that their owners number.
    assert_eq!(live.capacity, 2 * 1792);
    let sums = Sums {
        allocations: 1,
        allocated: 600,
        ..Sums::default()
    };
    assert_eq!(totals.device(Layer::Device, 1), sums);
    assert_eq!(totals.layer(Layer::Device), sums);
    assert_eq!(totals.device(Layer::Device, 0), Sums::default());
    assert_eq!(totals.layer(Layer::Tensor).live_bytes(), 500);

    let free = block(Kind::Free, Class::PoolAsync, 1 << 40, 0);
    let removed = Removed {
        size: 600,
        stack: 9,
    };
    assert_eq!(writer.record_free(&free), Some(removed));
    assert_eq!(writer.record_free(&free), None);
    let (live, totals) = read(writer.path());
    assert_eq!(live.blocks[..], events[1..]);
    let sums = totals.layer(Layer::Device);
    assert_eq!((sums.frees, sums.freed), (2, 600));
    assert_eq!(Trace::open(writer.path()).unwrap().recorded(), 4);
}

#[test]
fn blocks_go_with_their_context() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir);
    for number in 0..100 {
        for class in [Class::Device, Class::Tensor, Class::Host] {
            writer.record_alloc(&block(Kind::Alloc, class, number << 9, 10 + number));
        }
    }
    let dropped = writer.drop_live(|event| event.class == Class::Device && event.device == 1);
    assert_eq!(dropped, (100, 5950));
    let (live, totals) = read(writer.path());
    assert_eq!(live.blocks.len(), 200);
    assert_eq!(totals.layer(Layer::Device).live_bytes(), 0);
    assert_eq!(totals.layer(Layer::Device).frees, 100);
    assert_eq!(totals.layer(Layer::Host).live_bytes(), 5950);
    assert_eq!(writer.drop_live(|_| false), (0, 0));
}

#[test]
fn a_numbered_block_is_recorded_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    let numbers = Numbers::new();
    let made = block(Kind::Alloc, Class::Device, 512, 600);
    writer.record_numbered_alloc(&made, (&numbers, 5), 0);
    // Also the smallest table has places of their own.
    assert!(writer.mapped.live.known_place(&numbers, 5).is_some());
    let (live, _) = read(writer.path());
    let events = || Trace::open(writer.path()).unwrap().events().collect();
    let first: Vec<_> = events();
    assert_eq!((live.blocks.len(), first.len()), (1, 1));
    assert_eq!(live.blocks[0].event, made);
    assert_eq!(live.blocks[0].ns, first[0].ns);

    let free = block(Kind::Free, Class::Device, 512, 600);
    let ticks = writer.record_numbered_free(&free, (&numbers, 5));
    // Later than a free in the future, as another thread's clock may report it.
    let future = ticks + 1_000_000_000;
    writer.record_numbered_alloc(&made, (&numbers, 5), future);
    // A block with another block's number is recorded too, and so is one without a number.
    writer.record_numbered_alloc(
        &block(Kind::Alloc, Class::Device, 1024, 7),
        (&numbers, 5),
        0,
    );
    writer.record_numbered_alloc(
        &block(Kind::Alloc, Class::Device, 1536, 8),
        (&numbers, u32::MAX),
        0,
    );
    let (live, totals) = read(writer.path());
    assert_eq!(live.blocks.len(), 3);
    assert_eq!(totals.layer(Layer::Device).live_bytes(), 600 + 7 + 8);
    let all: Vec<_> = events();
    assert!(all[2].ns > all[1].ns);

    let taken = |address, number| writer.take_numbered(Class::Device, address, (&numbers, number));
    assert_eq!(taken(1024, 5).map(|block| block.size), Some(7));
    assert_eq!(taken(1024, 5), None);
    writer.record_left(&block(Kind::Free, Class::Device, 1024, 7));
    writer.record_numbered_free(&free, (&numbers, 5));
    writer.record_numbered_free(
        &block(Kind::Free, Class::Device, 1536, 8),
        (&numbers, u32::MAX),
    );
    let (live, totals) = read(writer.path());
    assert_eq!((live.blocks.len(), live.missed), (0, 0));
    let sums = totals.layer(Layer::Device);
    assert_eq!((sums.allocations, sums.frees, sums.live_bytes()), (4, 4, 0));
}

#[test]
fn a_table_that_is_too_small_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        live_blocks: Some(0),
        ..small()
    };
    let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
    let all = 3500;
    for number in 0..all {
        writer.record_alloc(&block(Kind::Alloc, Class::Device, number << 21, 1));
    }
    let (live, totals) = read(writer.path());
    assert!(!live.is_complete());
    // These blocks have no numbers: they find room in half of it.
    assert_eq!(live.capacity, 2 * 1792);
    assert_eq!(live.blocks.len() as u64 + live.missed, all);
    assert!((1750..=1792).contains(&live.blocks.len()));
    assert_eq!(totals.layer(Layer::Device).live(), all);
    for number in 0..all {
        writer.record_free(&block(Kind::Free, Class::Device, number << 21, 1));
    }
    let (live, totals) = read(writer.path());
    assert_eq!((live.blocks.len(), live.missed > 0), (0, true));
    assert_eq!(totals.layer(Layer::Device).live_bytes(), 0);
}

#[test]
fn the_size_of_the_table_is_the_options() {
    let bytes = |bytes, live_blocks| {
        let options = WriterOptions {
            bytes,
            live_blocks,
            ..WriterOptions::default()
        };
        options.file_bytes()
    };
    let group = |blocks: u64| (512 + 2 * blocks.div_ceil(7) * 512).next_multiple_of(4096);
    let small = bytes(4096, Some(1792));
    assert_eq!(bytes(4096, None), small);
    for (ring, blocks) in [(1 << 20, 2048), (64 << 20, 131_072), (1 << 30, 131_072)] {
        let asked = bytes(ring, Some(5_000_000));
        assert_eq!(bytes(ring, None), bytes(ring, Some(blocks)));
        assert_eq!(asked - bytes(ring, None), group(5_000_000) - group(blocks));
    }
    assert_eq!(bytes(4096, Some(u64::MAX)), bytes(4096, Some(1 << 26)));
}

const SLOTS: u64 = 200;

/// Returns the slot of a thread's step, and the event of the block made by this step.
fn toggled(thread: u64, step: u64) -> (u64, Event) {
    let slot = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xffff_ffff;
    let slot = slot % SLOTS;
    let event = Event {
        address: (thread * SLOTS + slot) << 9,
        size: step + 1,
        device: thread as u8,
        extra: [thread, step],
        ..Event::new(Kind::Alloc, Class::Device)
    };
    (slot, event)
}

/// Expected state of one thread after a number of steps: its live blocks by address, and its sums.
#[derive(Clone, Default)]
struct Truth {
    live: BTreeMap<u64, Event>,
    sums: Sums,
}

impl Truth {
    fn step(&mut self, thread: u64, step: u64) {
        let (_, event) = toggled(thread, step);
        if let Some(was) = self.live.remove(&event.address) {
            self.sums.frees += 1;
            self.sums.freed += was.size;
        } else {
            self.sums.allocations += 1;
            self.sums.allocated += event.size;
            self.live.insert(event.address, event);
        }
    }

    fn after(thread: u64, steps: u64) -> Truth {
        let mut truth = Truth::default();
        (0..steps).for_each(|step| truth.step(thread, step));
        truth
    }
}

/// Performs a step of a thread; `live` says for each of its slots if it holds a block.
fn toggle(writer: &Writer, thread: u64, step: u64, live: &mut [bool]) {
    let (slot, event) = toggled(thread, step);
    let live = &mut live[slot as usize];
    if *live {
        let kind = Kind::Free;
        writer
            .record_free(&Event { kind, ..event })
            .expect("it is live");
    } else {
        writer.record_alloc(&event);
    }
    *live = !*live;
}

/// Returns the live blocks of a thread in a table.
fn of_thread(live: &LiveTable, thread: u64) -> BTreeMap<u64, Event> {
    let mine = live.blocks.iter().map(|block| block.event);
    mine.filter(|event| event.extra[0] == thread)
        .map(|event| (event.address, event))
        .collect()
}

#[test]
fn threads_and_a_reader_at_once() {
    const STEPS: u64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let writer = &writer;
            scope.spawn(move || {
                let mut live = vec![false; SLOTS as usize];
                for step in 0..STEPS {
                    toggle(writer, thread, step, &mut live);
                }
            });
        }
        for _ in 0..100 {
            let (live, totals) = read(writer.path());
            assert!(live.in_flight <= 4 && live.missed == 0);
            for LiveBlock { event, .. } in &live.blocks {
                // Whole: all its words are those of its step.
                assert_eq!(*event, toggled(event.extra[0], event.extra[1]).1);
            }
            let sums = totals.layer(Layer::Device);
            assert!(sums.allocations <= 4 * STEPS && sums.frees <= sums.allocations + 4);
        }
    });
    let (live, totals) = read(writer.path());
    let mut all = 0;
    for thread in 0..4 {
        let truth = Truth::after(thread, STEPS);
        assert_eq!(of_thread(&live, thread), truth.live);
        assert_eq!(totals.device(Layer::Device, thread as u8), truth.sums);
        assert_eq!(truth.sums.live(), truth.live.len() as u64);
        all += truth.live.len();
    }
    assert!(all > 0 && live.blocks.len() == all && live.is_complete());
}

/// Returns the number of stripes of the totals with an owner.
fn owned(writer: &Writer) -> usize {
    let part = writer.mapped.places.totals;
    let owners = (part.at..part.at + part.length).step_by(layout::totals::STRIPE_BYTES);
    owners
        .filter(|at| writer.word(*at as usize).unwrap().load(Ordering::Relaxed) != 0)
        .count()
}

#[test]
fn threads_that_end_give_their_stripes_back() {
    let dir = tempfile::tempdir().unwrap();
    let writer = create(&dir);
    let alloc = |number: u64| {
        writer.record_alloc(&block(Kind::Alloc, Class::Device, number << 9, 1));
        writer.record_free(&block(Kind::Free, Class::Device, number << 9, 1));
    };
    for number in 0..300 {
        // Joined, unlike what a scope waits for, when all of its end has run.
        std::thread::scope(|scope| scope.spawn(|| alloc(number)).join().unwrap());
    }
    assert_eq!(owned(&writer), 0);
    // More threads at once than stripes: the last ones share.
    let barrier = Barrier::new(200);
    std::thread::scope(|scope| {
        let (alloc, barrier, writer) = (&alloc, &barrier, &writer);
        let run = move |number| {
            alloc(number);
            barrier.wait();
            assert_eq!(owned(writer), crate::layout::totals::STRIPES - 1);
            barrier.wait();
            (0..100).for_each(|_| alloc(number));
        };
        let threads: Vec<_> = (0..200)
            .map(|number| scope.spawn(move || run(number)))
            .collect();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(owned(&writer), 0);
    let sums = read(writer.path()).1.layer(Layer::Device);
    let blocks = 300 + 200 * 101;
    assert_eq!(
        [sums.allocations, sums.allocated, sums.frees, sums.freed],
        [blocks; 4]
    );
}

/// Runs in a child: four threads allocate and free until they are killed, and count each step.
pub fn toggle_for_ever(writer: &Writer, path: &Path) {
    let counts = counts(path);
    std::thread::scope(|scope| {
        for (thread, count) in (0..).zip(counts) {
            scope.spawn(move || {
                let mut live = vec![false; SLOTS as usize];
                for step in 0.. {
                    toggle(writer, thread, step, &mut live);
                    count.store(step + 1, Ordering::Release);
                }
            });
        }
    });
}

#[test]
fn a_killed_process_leaves_its_live_blocks_and_sums_exact() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..30 {
        let path = dir.path().join(format!("{round}.trace"));
        let counts = counts(&path);
        let mut process = child("blocks", &path).spawn().unwrap();
        wait_for_trace(&path, &mut process);
        std::thread::sleep(Duration::from_micros(431 * round));
        process.kill().unwrap();
        process.wait().unwrap();
        let (live, totals) = read(&path);
        let mut in_flight = 0;
        for (thread, count) in (0..).zip(counts) {
            // As after the last step noted, or after the one that was in flight.
            let steps = count.load(Ordering::Acquire);
            let before = Truth::after(thread, steps);
            let mut after = before.clone();
            after.step(thread, steps);
            let found = of_thread(&live, thread);
            assert!(found == before.live || found == after.live, "{thread}");
            in_flight += u64::from(found == before.live);
            let sums = totals.device(Layer::Device, thread as u8);
            let words = |sums: Sums| [sums.allocations, sums.allocated, sums.frees, sums.freed];
            for (at, word) in words(sums).into_iter().enumerate() {
                let either = [words(before.sums)[at], words(after.sums)[at]];
                assert!(either.contains(&word), "{thread}: {sums:?} of {either:?}");
            }
        }
        assert!(live.in_flight <= in_flight);
        assert_eq!(live.missed, 0);
        assert!(live.blocks.iter().all(|block| block.event.extra[0] < 4));
    }
}
