//! Tests of thread caches, on one thread that stands for several in turn.

use super::machine::stream;
use super::program::MIB;
use super::threads::Slow;
use crate::handles::{Context, Stream};
use crate::per_thread;
use crate::pool::{Backing, Pool, Settings};
use crate::types::{FreeError, Grant};

const STREAM: u64 = 16;

struct Program {
    driver: Slow,
    pool: Pool<Slow>,
}

impl Program {
    /// Makes a pool with thread caches.
    fn new() -> Program {
        let settings = Settings {
            backing: Backing::Pages,
            ..Settings::default()
        };
        let pool = Pool::new(0, settings);
        pool.contend();
        let driver = Slow::new(0);
        Program { driver, pool }
    }

    fn on(handle: u64) -> Stream {
        stream(Context(1), handle)
    }

    /// Allocates on a stream, as this thread.
    fn allocate(&self, thread: usize, handle: u64, bytes: u64) -> Grant {
        per_thread::have(thread);
        let grant = self.pool.allocate(&self.driver, Program::on(handle), bytes);
        grant.expect("memory")
    }

    /// Frees on a stream, as this thread.
    fn free(&self, thread: usize, handle: u64, grant: Grant) -> Result<(), FreeError<()>> {
        per_thread::have(thread);
        let on = Program::on(handle);
        let freed = self.pool.free(on, grant.address, |freed| {
            assert_eq!(freed.requested, grant.requested);
        });
        freed.map_err(|error| match error {
            FreeError::NotLive => FreeError::NotLive,
            _ => FreeError::Unknown,
        })
    }

    /// Puts a block into a thread's cache, and returns it.
    fn cached(&self, thread: usize, bytes: u64) -> Grant {
        let grant = self.allocate(thread, STREAM, bytes);
        self.free(thread, STREAM, grant).expect("a free");
        grant
    }
}

#[test]
fn a_pair_needs_no_lock() {
    let program = Program::new();
    let first = program.cached(1, MIB);
    let held = program.pool.hold();
    let again = program.allocate(1, STREAM, MIB);
    assert_eq!((again.address, again.number), (first.address, first.number));
    program.free(1, STREAM, again).expect("a free");
    drop(held);
    let stats = program.pool.stats();
    assert_eq!((stats.live, stats.allocated, stats.freed), (0, 0, 2));
    assert_eq!((stats.hits, stats.peak_allocated), (1, MIB));
}

#[test]
fn a_block_is_freed_once_wherever_it_is() {
    let program = Program::new();
    let unmerged = program.cached(1, MIB);
    for thread in [1, 2] {
        let again = program.free(thread, STREAM, unmerged);
        assert_eq!(again, Err(FreeError::NotLive));
    }
    // The block is in the caller's hands, and another thread or another stream frees it.
    for (thread, handle) in [(2, STREAM), (1, STREAM + 1)] {
        let grant = program.allocate(1, STREAM, MIB);
        assert_eq!(program.free(thread, handle, grant), Ok(()));
        assert_eq!(program.free(1, STREAM, grant), Err(FreeError::NotLive));
    }
    assert_eq!(program.pool.stats().live, 0);
}

#[test]
fn a_block_in_its_callers_hands_is_found() {
    let program = Program::new();
    let first = program.cached(1, 2 * MIB);
    let inside = first.address + 5;
    assert!(program.pool.find(inside).is_none(), "it is free");
    let again = program.allocate(1, STREAM, 2 * MIB - 100);
    assert_eq!(again.address, first.address);
    let found = program.pool.find(inside).expect("it is live");
    assert_eq!(
        (found.address, found.requested),
        (again.address, 2 * MIB - 100)
    );
    assert_eq!(
        program.pool.find(inside).map(|found| found.serial),
        Some(found.serial)
    );
}

#[test]
fn another_stream_and_another_thread_get_none_of_it_unseen() {
    let program = Program::new();
    let cached = program.cached(1, MIB);
    let other = program.allocate(1, STREAM + 1, MIB);
    assert_ne!(other.address, cached.address);
    let other = program.allocate(2, STREAM, MIB);
    assert_ne!(other.address, cached.address);
}

#[test]
fn memory_in_caches_serves_a_request_before_it_is_refused() {
    let program = Program::new();
    let all = program.driver.capacity();
    let parts: Vec<Grant> = (0..16)
        .map(|_| program.allocate(1, STREAM, all / 16))
        .collect();
    for part in parts {
        program.free(1, STREAM, part).expect("a free");
    }
    let whole = program.allocate(2, STREAM, all);
    assert_eq!(program.pool.stats().live, 1);
    program.free(2, STREAM, whole).expect("a free");
}

#[test]
fn a_thread_that_only_frees_keeps_nothing() {
    let program = Program::new();
    for _ in 0..1000 {
        let grant = program.allocate(1, STREAM, MIB);
        program.free(2, STREAM, grant).expect("a free");
    }
    assert_eq!(program.pool.stats().reserved, 2 * MIB);
}

#[test]
fn caches_that_serve_little_end_with_a_tick() {
    let program = Program::new();
    let pairs = |count: usize| {
        for _ in 0..count {
            program.cached(1, MIB);
        }
    };
    pairs(2000);
    program.pool.decay(&program.driver);
    assert!(program.pool.has_caches(), "they served");
    pairs(10);
    program.pool.decay(&program.driver);
    assert!(!program.pool.has_caches());
    pairs(10);
    assert_eq!(program.pool.stats().freed, 2020);
}

#[test]
fn a_pair_for_all_streams_needs_no_lock_once_its_work_is_complete() {
    let program = Program::new();
    let all = Stream::ALL;
    let blocks: Vec<Grant> = (0..4).map(|_| program.allocate(1, all, MIB)).collect();
    for block in &blocks {
        program.free(1, all, *block).expect("a free");
    }
    let mark = program.pool.mark(Context(1), None, true);
    program.pool.synchronized(&mark);
    let hits = program.pool.stats().hits;
    // The first allocation takes the lock, and borrows the other blocks.
    let first = program.allocate(1, all, MIB);
    let held = program.pool.hold();
    program.free(1, all, first).expect("a free");
    let second = program.allocate(1, all, MIB);
    assert_ne!(second.address, first.address, "its work may go on");
    let freed = program
        .pool
        .free_in_context(second.address, None, |freed| assert!(freed.for_all));
    assert_eq!(freed, Ok(Context(1)));
    drop(held);
    assert_eq!(program.free(1, all, second), Err(FreeError::NotLive));
    let stats = program.pool.stats();
    assert_eq!((stats.live, stats.freed, stats.hits - hits), (0, 6, 2));
    assert_eq!(stats.cached_for_all(), stats.reserved);
}

#[test]
fn what_was_freed_for_all_streams_waits_for_a_fence() {
    let program = Program::new();
    let all = Stream::ALL;
    // Each free is of the block that was just handed out, so no block is ready.
    for _ in 0..100 {
        let block = program.allocate(1, all, MIB);
        program.free(1, all, block).expect("a free");
        assert!(program.pool.find(block.address).is_none());
    }
    let stats = program.pool.stats();
    assert_eq!((stats.live, stats.freed), (0, 100));
}
