//! Random programs of threads that record, pause, end and are followed; and threads at full speed.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::ring::ChunkLease;
use crate::space::Room;
use crate::{Class, WriterOptions};

struct Memory {
    next: AtomicU64,
    dropped: AtomicU64,
    chunks: Vec<AtomicU64>,
    slots: Vec<Slot<AtomicU64>>,
}

impl Memory {
    fn new(chunks: usize, each: usize) -> Memory {
        let word = || AtomicU64::new(0);
        Memory {
            next: word(),
            dropped: word(),
            chunks: (0..chunks).map(|_| word()).collect(),
            slots: (0..chunks * each).map(|_| Slot::empty()).collect(),
        }
    }

    fn ring(&self) -> Ring<'_, AtomicU64> {
        Ring::new(&self.next, &self.dropped, &self.chunks, &self.slots).unwrap()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A thread records this many events.
    Record(usize, u64),
    /// A thread ends; its number is reused by a new one.
    End(usize),
    /// The follower polls; the newest events, of this many ticks, are too young.
    Poll(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3_usize, 1..40_u64).prop_map(|(thread, events)| Step::Record(thread, events)),
        1 => (0..3_usize).prop_map(Step::End),
        3 => prop_oneof![Just(0), Just(5), Just(1000)].prop_map(Step::Poll),
    ];
    prop::collection::vec(step, 1..60)
}

fn cases() -> u32 {
    if cfg!(miri) { 4 } else { 3000 }
}

#[test]
fn a_chunk_is_not_read_before_it_has_space() {
    let memory = Memory::new(4, 4);
    let (ring, hold) = (memory.ring(), ChunkLease::none());
    ring.push(&hold, &[1, 0, 0, 0, 0, 0, 0]);
    // Its thread has the turn, and asks for the space.
    let ring = memory.ring().within(Room::default(), Room::default());
    let mut follower = Follower::new(&ring);
    let mut count = 0;
    follower.poll(&ring, u64::MAX, 0, &mut |events| count += events.len());
    assert_eq!(count, 0);
    ring.push(&ChunkLease::none(), &[2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ring.ready(), 4);
    follower.poll(&ring, u64::MAX, 0, &mut |events| count += events.len());
    assert_eq!(count, 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_event_comes_once_and_in_order_or_is_counted(steps in steps(), shape in 0..4_usize) {
        let (chunks, each) = [(1, 1), (2, 4), (8, 2), (4, 16)][shape];
        let memory = Memory::new(chunks, each);
        let ring = memory.ring();
        let mut follower = Follower::new(&ring);
        let holds: Vec<ChunkLease> = (0..3).map(|_| ChunkLease::none()).collect();
        let (mut ticks, mut got) = (0_u64, Vec::<Tailed>::new());
        for step in &steps {
            match *step {
                Step::Record(thread, events) => {
                    for _ in 0..events {
                        ticks += 1;
                        ring.push(&holds[thread], &[ticks; 7]);
                    }
                }
                Step::End(thread) => ring.close(&holds[thread]),
                Step::Poll(hold_back) => {
                    let before = got.len();
                    let horizon = ticks.saturating_sub(hold_back);
                    follower.poll(&ring, horizon, hold_back, &mut |events| got.extend_from_slice(events));
                    prop_assert!(got[before..].iter().all(|one| one.ticks() <= horizon));
                    // Every event of the ring was read, and is given or held back.
                    let numbers = got.len() + follower.waiting.len();
                    let gone = follower.overwritten + ring.given_up();
                    prop_assert_eq!(numbers as u64 + gone, ticks);
                }
            }
        }
        let held = readable(&memory);
        follower.flush(&ring, &mut |events| got.extend_from_slice(events));
        prop_assert!(got.is_sorted_by_key(|one| one.ticks()), "nothing here is published late");
        prop_assert!(got.windows(2).all(|pair| pair[0].ticks() < pair[1].ticks()), "each once");
        prop_assert!(got.iter().all(|one| one.words == [one.ticks(); 7]));
        prop_assert_eq!(got.len() as u64 + follower.overwritten + ring.given_up(), ticks);
        prop_assert!(held.iter().all(|ticks| got.iter().any(|one| one.ticks() == *ticks)));
    }
}

/// Returns the ticks of all events that the slots hold.
fn readable(memory: &Memory) -> Vec<u64> {
    let copy = |slot: &Slot<AtomicU64>| match slot.state() {
        State::Complete(number) => slot.copy(number).map(|words| words[0]),
        _ => None,
    };
    memory.slots.iter().filter_map(copy).collect()
}

#[test]
fn what_a_paused_thread_adds_to_its_chunk_is_seen() {
    let memory = Memory::new(64, 16);
    let ring = memory.ring();
    let (paused, busy) = (ChunkLease::none(), ChunkLease::none());
    let mut follower = Follower::new(&ring);
    let mut got = Vec::new();
    ring.push(&paused, &[1; 7]);
    let mut poll = |follower: &mut Follower| {
        follower.poll(&ring, u64::MAX, 0, &mut |events| {
            got.extend_from_slice(events)
        });
    };
    poll(&mut follower);
    for ticks in 2..5000 {
        ring.push(&busy, &[ticks; 7]);
        if ticks % 50 == 0 {
            poll(&mut follower);
        }
    }
    ring.push(&paused, &[5000; 7]);
    poll(&mut follower);
    assert_eq!(got.len(), 5000);
    assert!(got.is_sorted_by_key(|one| one.ticks()));
    assert_eq!(follower.overwritten, 0);
    assert_eq!(follower.watched.len(), 2, "two chunks are open");
}

#[test]
fn a_turn_taken_before_its_chunk_is_opened_is_remembered() {
    let memory = Memory::new(4, 2);
    let ring = memory.ring();
    let mut follower = Follower::new(&ring);
    let mut got = 0;
    // A thread took turn 0 and was interrupted before it opened the chunk.
    memory.next.store(1, Ordering::Relaxed);
    follower.poll(&ring, u64::MAX, 0, &mut |events| got += events.len());
    assert_eq!((got, follower.watched.as_slice()), (0, &[0][..]));
    // Now it continues, and takes no further turn.
    memory.chunks[0].store(Chunk::Open(0).word(), Ordering::Relaxed);
    memory.slots[0].set(State::complete(0), [7; 7]);
    follower.poll(&ring, u64::MAX, 0, &mut |events| got += events.len());
    memory.chunks[0].store(Chunk::Closed(1).word(), Ordering::Relaxed);
    follower.poll(&ring, u64::MAX, 0, &mut |events| got += events.len());
    assert_eq!((got, follower.watched.len()), (1, 0));
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn four_threads_at_full_speed_are_followed_or_counted() {
    const EACH: u64 = 400_000;
    for bytes in [4096, 64 << 10, 8 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            bytes,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
        let mut tail = Tail::new(&writer);
        let done = AtomicBool::new(false);
        let (mut count, mut last, mut late) = (0_u64, [None; 4], 0_u64);
        let mut sink = |events: &[Tailed]| {
            for one in events {
                let event = one.event();
                assert_eq!(event.size, event.address * 3, "a torn event");
                let last = &mut last[event.thread as usize];
                late += u64::from(*last > Some(event.address));
                *last = Some(event.address);
            }
            count += events.len() as u64;
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u32)
                .map(|thread| {
                    let writer = &writer;
                    scope.spawn(move || {
                        for number in 0..EACH {
                            writer.record(&Event {
                                thread,
                                address: number,
                                size: number * 3,
                                ..Event::new(Kind::Alloc, Class::Device)
                            });
                        }
                    })
                })
                .collect();
            let done = &done;
            scope.spawn(move || {
                threads
                    .into_iter()
                    .for_each(|thread| thread.join().unwrap());
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                tail.poll(100_000, &mut sink);
            }
        });
        tail.flush(&mut sink);
        let missed = tail.missed();
        assert_eq!(count + missed.total(), 4 * EACH, "{bytes}: {missed:?}");
        assert!(count > 0);
        // A thread's events are late only if a chunk changed its holder while it was read.
        assert!(
            late == 0 || missed.overwritten > 0,
            "{late} late, {missed:?}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "files and time")]
fn an_idle_poll_costs_next_to_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &WriterOptions::default()).unwrap();
    for number in 0..2_000_000 {
        writer.record(&Event {
            address: number,
            ..Event::new(Kind::Alloc, Class::Device)
        });
    }
    let mut tail = Tail::new(&writer);
    let mut count = 0;
    tail.flush(&mut |events| count += events.len() as u64);
    assert_eq!(count + tail.missed().total(), 2_000_000);
    let mut best = Duration::MAX;
    for _ in 0..100 {
        let from = Instant::now();
        tail.poll(0, &mut |_| panic!("nothing was recorded"));
        best = best.min(from.elapsed());
    }
    println!("an idle poll: {best:?}");
    assert!(best < Duration::from_micros(100), "{best:?}");
}
