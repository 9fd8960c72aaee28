//! Requests of other threads while a miss waits on the host for the GPU. The work that it waits for
//! may itself wait for such a thread.

use super::machine::backing;
use super::threads::Slow;
use crate::handles::{Context, Stream};
use crate::policy::{Policy, Reuse};
use crate::pool::{Pool, Settings};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const HERE: Context = Context(1);
/// Time after which a request counts as blocked.
const LONG: Duration = Duration::from_secs(20);
/// Delay of events that are complete only after a wait.
const NEVER: u64 = 1 << 40;

type Both = Arc<(Slow, Pool<Slow>)>;

fn both(policy: Policy, reuse: Reuse, capacity: u64) -> Both {
    let settings = Settings {
        backing: backing(policy),
        reuse,
        ..Settings::default()
    };
    let driver = Slow::with_capacity(NEVER, capacity);
    Arc::new((driver, Pool::new(0, settings)))
}

/// Checks that another thread's miss is served during the next wait of `request`.
fn another_miss_is_served_during(both: &Both, request: impl FnOnce(&Slow, &Pool<Slow>)) {
    let another = |driver: &Slow, pool: &Pool<Slow>| {
        let stream = Stream {
            context: HERE,
            handle: 7,
            thread: 0,
        };
        pool.allocate(driver, stream, MIB).is_ok()
    };
    assert!(during(both, another, request), "the other miss");
}

/// Runs `other` on another thread during the next wait of `request`. Returns its result.
fn during<T: Send + 'static>(
    both: &Both,
    other: impl FnOnce(&Slow, &Pool<Slow>) -> T + Send + 'static,
    request: impl FnOnce(&Slow, &Pool<Slow>),
) -> T {
    let (ours, (answers, from)) = (both.clone(), channel());
    let in_wait = move || {
        let (ended, end) = channel();
        thread::spawn(move || ended.send(other(&ours.0, &ours.1)));
        let _ = answers.send(end.recv_timeout(LONG));
    };
    let (driver, pool) = &**both;
    *driver.in_wait.lock() = Some(Box::new(in_wait));
    request(driver, pool);
    let answer = from.try_recv().expect("the host waited");
    answer.expect("the other thread was not blocked")
}

/// Frees blocks of these sizes in MiB, with a live block behind each, as `cudaFree` does.
fn freed(both: &Both, sizes: &[u64]) {
    let (driver, pool) = &**both;
    let all = Stream::all_of(HERE);
    let allocate = |bytes| pool.allocate(driver, all, bytes).expect("memory");
    let blocks: Vec<_> = sizes
        .iter()
        .map(|size| (allocate(size * MIB), allocate(2 * MIB)))
        .collect();
    for (block, _) in blocks {
        pool.free(all, block.address, |_| ()).expect("a live block");
    }
}

fn allocate(bytes: u64) -> impl FnOnce(&Slow, &Pool<Slow>) {
    move |driver, pool| {
        let grant = pool.allocate(driver, Stream::all_of(HERE), bytes);
        grant.expect("memory after the wait");
    }
}

#[test]
fn while_cuda_malloc_waits_before_it_exceeds_the_peak() {
    let both = both(Policy::Vmm, Reuse::Order, 1 << 30);
    freed(&both, &[20, 20]);
    another_miss_is_served_during(&both, allocate(40 * MIB));
}

#[test]
fn while_the_host_waits_for_a_block() {
    for policy in [Policy::Vmm, Policy::Blocks] {
        let both = both(policy, Reuse::Wait, 64 * MIB);
        freed(&both, &[40]);
        another_miss_is_served_during(&both, allocate(40 * MIB));
    }
}

#[test]
fn while_memory_is_short() {
    for policy in [Policy::Vmm, Policy::Blocks] {
        let both = both(policy, Reuse::Order, 64 * MIB);
        freed(&both, &[20, 20]);
        another_miss_is_served_during(&both, allocate(42 * MIB));
    }
}

#[test]
fn while_an_exported_allocation_is_freed() {
    let both = both(Policy::Blocks, Reuse::Order, 1 << 30);
    let all = Stream::all_of(HERE);
    let (driver, pool) = &*both;
    let block = pool.allocate(driver, all, 20 * MIB).expect("memory");
    pool.exported(block.address);
    pool.free(all, block.address, |_| ()).expect("a live block");
    another_miss_is_served_during(&both, |driver, pool| {
        assert_eq!(pool.release_exported(driver), 20 * MIB);
    });
}

#[test]
fn while_the_driver_takes_an_allocation_back() {
    let both = both(Policy::Blocks, Reuse::Order, 1 << 30);
    freed(&both, &[20]);
    let (driver, pool) = &*both;
    pool.make_room(driver, true, LONG);
    let stream = Stream {
        context: HERE,
        handle: 9,
        thread: 0,
    };
    let block = pool.allocate(driver, stream, 20 * MIB).expect("memory");
    pool.free(stream, block.address, |_| ())
        .expect("a live block");
    let marks = pool.mark(HERE, Some(stream), true);
    pool.synchronized(&marks);
    another_miss_is_served_during(&both, |driver, pool| {
        assert_eq!(pool.trim(driver, 0), 20 * MIB);
    });
}

#[test]
fn a_context_may_end_while_the_host_waits_for_a_block() {
    let both = both(Policy::Blocks, Reuse::Wait, 1 << 30);
    freed(&both, &[200, 200, 200]);
    let all = Stream::all_of(HERE);
    let end = |driver: &Slow, pool: &Pool<Slow>| pool.home_gone(driver);
    let mut grant = None;
    during(&both, end, |driver, pool| {
        grant = pool.allocate(driver, all, 200 * MIB).ok();
    });
    let (pool, grant) = (&both.1, grant.expect("memory of the device"));
    assert_eq!(pool.stats().allocated, grant.size);
    pool.free(all, grant.address, |_| ()).expect("a live block");
}
