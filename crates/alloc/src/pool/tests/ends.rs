//! Tests that streams, threads and contexts leave nothing behind when they end.

use super::machine::backing;
use super::threads::Slow;
use crate::handles::Context;
use crate::handles::Stream;
use crate::policy::Policy;
use crate::pool::{Pool, Settings};

/// Number of streams, threads or contexts that a test creates and ends.
const MANY: u64 = 2_000;
/// Most stream queues at a time. The work of a stream that ended may complete a little later.
const LANES: usize = 24;

fn each_policy(run: impl Fn(&Slow, &Pool<Slow>, u64)) {
    for policy in [Policy::Vmm, Policy::Blocks] {
        let driver = Slow::new(6);
        let settings = Settings {
            backing: backing(policy),
            ..Settings::default()
        };
        let pool = Pool::new(0, settings);
        for n in 1..=MANY {
            run(&driver, &pool, n);
            let queues = pool.state.lock().queues.numbers().len();
            assert!(queues <= LANES, "{policy:?}: {queues} queues after {n}");
        }
        let held = pool.stats().reserved;
        assert!(held <= 64 << 20, "{policy:?}: {held} bytes are held");
        pool.trim(&driver, 0);
    }
}

fn one(driver: &Slow, pool: &Pool<Slow>, stream: Stream) {
    let grant = pool.allocate(driver, stream, 100_000).expect("memory");
    pool.free(stream, grant.address, |_| ()).expect("a free");
}

#[test]
fn threads_that_end() {
    each_policy(|driver, pool, n| {
        for context in 1..3 {
            let stream = Stream {
                context: Context(context),
                handle: Stream::PER_THREAD,
                thread: n,
            };
            one(driver, pool, stream);
        }
        pool.thread_gone(driver, n);
        assert!(pool.state.lock().queues.of_thread(n).is_empty());
    });
}

#[test]
fn streams_that_are_destroyed() {
    each_policy(|driver, pool, n| {
        let stream = Stream {
            context: Context(1),
            handle: 100 + n,
            thread: 0,
        };
        one(driver, pool, stream);
        pool.stream_gone(driver, stream);
    });
}

#[test]
fn contexts_that_are_destroyed() {
    each_policy(|driver, pool, n| {
        let context = Context(n);
        let stream = Stream {
            context,
            handle: 7,
            thread: 0,
        };
        one(driver, pool, stream);
        let grant = pool.allocate(driver, stream, 5_000).expect("memory");
        pool.context_gone(driver, context);
        // The block outlives its context.
        let elsewhere = Stream {
            context: Context(MANY + 1),
            ..stream
        };
        pool.free(elsewhere, grant.address, |_| ()).expect("a free");
    });
}
