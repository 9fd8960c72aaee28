//! Every interleaving of recording threads with a follower, for a tiny ring.

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as Modelled;
use loom::thread;

use super::Follower;
use crate::explore::explore;
use crate::ring::ChunkLease;
use crate::ring::model::Memory;

/// Each writer records a number of events while the ring is followed: each event comes once, or is
/// counted as lost. A single writer has a chunk to itself, and none of its present events is
/// counted as lost.
fn check(preemptions: usize, chunks: usize, each: usize, writers: &'static [u64]) {
    explore(preemptions, move || {
        let memory: Arc<Memory> = Memory::new(chunks, each);
        let threads: Vec<_> = (1_u64..)
            .zip(writers)
            .map(|(name, events)| {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    let hold = ChunkLease::none();
                    for event in 1..=*events {
                        memory.ring().push(&hold, &[name * 10 + event; 7]);
                    }
                    memory.ring().close(&hold);
                })
            })
            .collect();
        let mut follower = Follower::new::<Modelled>(&memory.ring());
        let mut got = Vec::new();
        follower.poll(&memory.ring(), u64::MAX, 0, &mut |events| {
            got.extend_from_slice(events)
        });
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        follower.flush(&memory.ring(), &mut |events| got.extend_from_slice(events));
        let mut payloads: Vec<u64> = got.iter().map(|one| one.words[0]).collect();
        assert!(
            got.iter().all(|one| one.words == [one.words[0]; 7]),
            "a torn payload"
        );
        payloads.sort_unstable();
        payloads.dedup();
        assert_eq!(payloads.len(), got.len(), "an event twice");
        let recorded: u64 = writers.iter().sum();
        let missed = follower.overwritten + memory.ring().given_up();
        assert_eq!(got.len() as u64 + missed, recorded);
        if writers.len() == 1 {
            // Its last events are there, and it is never so fast that they could not be read.
            assert!(
                missed <= recorded.saturating_sub(each as u64),
                "{missed} missed"
            );
        }
    });
}

#[test]
fn each_event_of_one_writer_comes_once_or_is_counted() {
    check(2, 1, 1, &[2]);
}

#[test]
fn each_event_of_two_writers_comes_once_or_is_counted() {
    check(1, 1, 2, &[1, 1]);
}

#[test]
fn none_is_counted_that_is_there() {
    check(1, 1, 2, &[3]);
}
