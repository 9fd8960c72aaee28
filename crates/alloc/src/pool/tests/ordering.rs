//! Tests of requests that wait for other streams, while other threads free memory and contexts end.

use super::threads::Slow;
use crate::handles::{Context, Stream};
use crate::pool::{Pool, Settings};
use crate::types::Source;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// Delay of an event that never completes during a test.
const NEVER: u64 = 1 << 40;

fn stream(context: u64) -> Stream {
    Stream::all_of(Context(context))
}

#[test]
fn a_free_during_the_wait_costs_no_memory() {
    let ours = Arc::new((Slow::new(NEVER), Pool::new(0, Settings::default())));
    let (driver, pool) = &*ours;
    let of_one = |_| pool.allocate(driver, stream(1), MIB).expect("memory");
    // There are two pages: a free block of a whole page could move.
    let blocks: Vec<_> = (0..4).map(of_one).collect();
    let held = pool.stats().reserved;
    pool.free(stream(1), blocks[0].address, |_| ())
        .expect("a free");
    let other = ours.clone();
    let neighbour = blocks[1].address;
    // A merge with the block before it would make that block wait for a later fence.
    let free = move || {
        other.1.free(stream(1), neighbour, |_| ()).expect("a free");
    };
    *driver.meanwhile.lock() = Some(Box::new(free));
    let grant = pool.allocate(driver, stream(2), MIB).expect("memory");
    assert_eq!(
        (grant.address, grant.source),
        (blocks[0].address, Source::Ordered)
    );
    assert!(driver.meanwhile.lock().is_none(), "the stream waited");
    assert_eq!(pool.stats().reserved, held);
}

#[test]
fn a_context_that_ends_voids_no_event_of_the_device() {
    let (driver, pool) = (Slow::new(NEVER), Pool::new(0, Settings::default()));
    let block = pool.allocate(&driver, stream(1), 4 * MIB).expect("memory");
    pool.free(stream(1), block.address, |_| ()).expect("a free");
    pool.context_leaves(&driver, Context(1));
    pool.context_gone(&driver, Context(1));
    pool.refresh(&driver);
    let recorded = || {
        let mut state = pool.state.lock();
        let queue = state.queues.known(Stream::all_of_device(0));
        state.queues.at(queue.expect("a queue"))?.fences.last()
    };
    let event = recorded();
    assert!(event.is_some());
    pool.context_gone(&driver, Context(2));
    assert_eq!(recorded(), event);
}

#[test]
fn work_is_complete_once_no_context_is_left() {
    let (driver, pool) = (Slow::new(NEVER), Pool::new(0, Settings::default()));
    // They are not adjacent: the block between them is live.
    for context in [1, 3, 2] {
        let grant = pool.allocate(&driver, stream(context), 4 * MIB);
        grant.expect("memory");
    }
    let end = |context| pool.context_gone(&driver, Context(context));
    end(1);
    pool.device_idle(|| false);
    assert_eq!(pool.trim(&driver, 0), 0);
    pool.device_idle(|| end(2) > 0);
    assert_eq!(pool.trim(&driver, 0), 4 * MIB, "the second waits");
}

/// Frees two blocks around a live one on a stream, then allocates their sum for all streams.
/// Returns the bytes held before and after the allocation, and the number of host waits.
fn allocate_after_frees(freed_on: Stream) -> (u64, u64, u64) {
    let (driver, pool) = (Slow::new(NEVER), Pool::new(0, Settings::default()));
    let of_one = |mib| {
        pool.allocate(&driver, stream(1), mib * MIB)
            .expect("memory")
    };
    let [first, _between, last] = [64, 32, 64].map(of_one);
    for block in [first, last] {
        pool.free(freed_on, block.address, |_| ()).expect("a free");
    }
    let held = pool.stats().reserved;
    of_one(128);
    (held, pool.stats().reserved, pool.stats().host_waits)
}

#[test]
fn cuda_malloc_waits_for_memory_of_cuda_free_before_the_pool_exceeds_its_peak() {
    let expected = (160 * MIB, 160 * MIB, 1);
    assert_eq!(allocate_after_frees(stream(1)), expected);
}

#[test]
fn cuda_malloc_does_not_wait_for_frees_on_streams() {
    let ordered = Stream {
        context: Context(1),
        handle: 7,
        thread: 0,
    };
    let expected = (160 * MIB, 288 * MIB, 0);
    assert_eq!(allocate_after_frees(ordered), expected);
}
