//! Chunks: held, taken from a thread that stalls, closed by one that ends.

use super::*;

/// A ring of 1,024 slots in chunks of 4.
pub(super) fn chunked() -> WriterOptions {
    WriterOptions {
        bytes: 64 << 10,
        ..WriterOptions::default()
    }
}

/// The word of a chunk of a writer's ring.
pub(super) fn chunk(writer: &Writer, index: usize) -> &AtomicU64 {
    let at = writer.mapped.places.chunks.at as usize + 8 * index;
    writer.word(at).unwrap()
}

pub(super) fn open_chunks(writer: &Writer) -> usize {
    let chunks = writer.mapped.ring.capacity() / layout::chunk_slots(writer.mapped.ring.capacity());
    let open = |index: &usize| chunk(writer, *index).load(Ordering::Relaxed) & 1 == 1;
    (0..chunks).filter(open).count()
}

pub(super) fn numbers(trace: &Trace) -> Vec<u64> {
    trace.events().map(|record| record.event.address).collect()
}

#[test]
fn a_writer_stalled_within_an_event_costs_its_chunk_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    for number in 0..5 {
        writer.record(&numbered(1, number));
    }
    // A thread took chunk 5, which is slot 5, and never published its event. Another took chunk 6
    // and never began one.
    let slot = writer
        .word(Places::of(&small()).ring.at as usize + 5 * layout::RECORD_BYTES)
        .unwrap();
    slot.store(layout::Slot::writing(0), Ordering::Relaxed);
    for index in [5, 6] {
        chunk(&writer, index).store(layout::Chunk::Open(0).word(), Ordering::Relaxed);
    }
    for number in 5..1000 {
        writer.record(&numbered(1, number));
    }
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(
        (trace.recorded(), trace.torn(), trace.dropped()),
        (1001, 1, 0)
    );
    assert_eq!((trace.readable(), trace.lost()), (62, 938));
    assert_eq!(numbers(&trace), (938..1000).collect::<Vec<_>>());
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn events_of_a_chunk_that_was_taken_and_not_begun_are_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &small()).unwrap();
    for number in 0..70 {
        writer.record(&numbered(1, number));
    }
    // A thread took chunk 6 and was killed: event 6 is still in it.
    chunk(&writer, 6).store(layout::Chunk::Open(1).word(), Ordering::Relaxed);
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(numbers(&trace), (6..70).collect::<Vec<_>>());
    assert_eq!(
        (trace.recorded(), trace.readable(), trace.lost()),
        (70, 64, 6)
    );
    assert_eq!(trace.problems(), [] as [&str; 0]);
}

#[test]
fn a_thread_that_pauses_keeps_its_events_and_goes_on_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &chunked()).unwrap();
    for number in 0..2 {
        writer.record(&numbered(1, number));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| (2..5000).for_each(|number| writer.record(&numbered(2, number))));
    });
    writer.record(&numbered(1, 5000));
    let trace = Trace::open(writer.path()).unwrap();
    let kept = numbers(&trace);
    assert_eq!(kept[..2], [0, 1]);
    // All the other slots, except the unused one in the paused thread's chunk.
    assert_eq!(kept[2..], (5001 - 1021..5001).collect::<Vec<_>>());
    assert_eq!(
        (trace.recorded(), trace.torn(), trace.dropped()),
        (5001, 0, 0)
    );
    assert!(trace.has_wrapped());
    let last = trace.events().last().unwrap();
    assert_eq!((last.event.thread, last.ticket), (1, 5000));
}

#[test]
fn threads_that_end_close_their_chunks() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &chunked()).unwrap();
    for thread in 0..1000 {
        std::thread::scope(|scope| {
            let writer = &writer;
            // Joined, unlike what a scope waits for, when all of its end has run.
            let number = u64::from(thread);
            let handle = scope.spawn(move || writer.record(&numbered(thread, number)));
            handle.join().unwrap();
        });
    }
    assert_eq!(open_chunks(&writer), 0);
    let trace = Trace::open(writer.path()).unwrap();
    assert_eq!(
        (trace.recorded(), trace.torn(), trace.dropped()),
        (1000, 0, 0)
    );
    assert_eq!(numbers(&trace), (744..1000).collect::<Vec<_>>());
    assert!(
        trace.has_wrapped(),
        "although 1,000 events are fewer than 1,024 slots"
    );
}

#[test]
fn one_thread_and_two_traces() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let create = |name| Writer::create(&dir.path().join(name), &chunked()).unwrap();
            let (first, second) = (create("a.trace"), create("b.trace"));
            for number in 0..=100 {
                first.record(&numbered(1, number));
                if number % 3 == 0 {
                    second.record(&numbered(2, number));
                }
            }
            for (writer, count) in [(&first, 101), (&second, 34)] {
                let trace = Trace::open(writer.path()).unwrap();
                assert_eq!((trace.recorded(), trace.readable()), (count, count));
                assert!(numbers(&trace).is_sorted());
            }
            assert_eq!(open_chunks(&second), 0);
            assert_eq!(open_chunks(&first), 1);
            // The chunk that this thread holds ends with its trace, and another trace may get its
            // memory.
            drop(first);
            let third = create("c.trace");
            third.record(&numbered(3, 0));
            drop(third);
            second.record(&numbered(2, 100));
            assert_eq!(Trace::open(second.path()).unwrap().recorded(), 35);
            drop(second);
        });
    });
}

#[test]
#[cfg_attr(miri, ignore = "no fork under Miri")]
fn a_thread_that_ends_in_a_forked_child_does_not_close_the_parents_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(&dir.path().join("a.trace"), &chunked()).unwrap();
    let (mut thread, mut status) = (0, std::ptr::null_mut());
    let argument = std::ptr::from_ref(&writer).cast_mut().cast();
    // SAFETY: the pointers are to locals that outlive the thread, which is joined here.
    unsafe {
        let null = std::ptr::null();
        assert_eq!(
            libc::pthread_create(&mut thread, null, ends_in_a_forked_child, argument),
            0
        );
        assert_eq!(libc::pthread_join(thread, &mut status), 0);
    }
    assert_eq!(
        status.addr(),
        0,
        "the child ended by itself and closed nothing"
    );
    assert_eq!(
        chunk(&writer, 0).load(Ordering::Relaxed),
        layout::Chunk::Closed(2).word()
    );
    assert_eq!(numbers(&Trace::open(writer.path()).unwrap()), [0, 1]);
}
