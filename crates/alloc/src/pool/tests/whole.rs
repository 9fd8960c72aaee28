//! Tests of driver allocations that are given back, or serve other requests.

use super::machine::{HOME, backing};
use super::program::MIB;
use super::threads::Slow;
use crate::handles::Stream;
use crate::policy::Policy;
use crate::pool::{Pool, Settings};
use crate::types::{FreeError, Grant, Source};

struct Program {
    driver: Slow,
    pool: Pool<Slow>,
}

impl Program {
    fn new() -> Program {
        let settings = Settings {
            backing: backing(Policy::Blocks),
            ..Settings::default()
        };
        Program {
            driver: Slow::with_capacity(0, 8 << 30),
            pool: Pool::new(0, settings),
        }
    }

    fn allocate(&self, bytes: u64) -> Grant {
        let stream = Stream::all_of(HOME.context);
        let grant = self.pool.allocate(&self.driver, stream, bytes);
        grant.expect("memory")
    }

    fn free(&self, grant: Grant) -> Result<(), FreeError<super::threads::OutOfMemory>> {
        let freed = self
            .pool
            .free_in_context(grant.address, Some(HOME.context), |_| ());
        freed.map(|_| ())
    }

    fn give_complete(&self, bytes: u64) -> u64 {
        let patience = std::time::Duration::from_secs(1);
        self.pool.give_complete(&self.driver, bytes, patience)
    }
}

#[test]
fn what_was_freed_first_goes_back_first() {
    let program = Program::new();
    let blocks = [30, 10, 20].map(|mib| program.allocate(mib * MIB));
    for block in blocks {
        program.free(block).expect("a free");
        // Each free gets a fence of its own.
        program.give_complete(0);
    }
    let given = [1, 1, 1].map(|bytes| program.give_complete(bytes) / MIB);
    assert_eq!(given, [30, 10, 20]);
}

#[test]
fn a_larger_block_serves_before_memory_goes_back() {
    let program = Program::new();
    let large = program.allocate(200 * MIB);
    program.free(large).expect("a free");
    // The pool may hold as much beside it.
    let small = program.allocate(40 * MIB);
    assert_eq!(small.source, Source::Grown);
    let other = program.allocate(140 * MIB);
    assert_eq!((other.address, other.size), (large.address, 200 * MIB));
    assert_eq!(program.pool.stats().reserved, 240 * MIB);
}

#[test]
fn an_exported_allocation_is_freed_with_its_block() {
    let program = Program::new();
    let block = program.allocate(10 * MIB);
    assert!(!program.pool.has_exported());
    program.pool.exported(block.address + MIB);
    assert!(program.pool.has_exported());
    program.free(block).expect("a free");
    assert_eq!(program.free(block), Err(FreeError::NotLive));
    assert_eq!(program.pool.release_exported(&program.driver), 10 * MIB);
    assert_eq!(program.driver.held(), 0);
    assert_eq!(program.free(block), Err(FreeError::Unknown));
}

#[test]
fn the_end_of_the_context_ends_all_without_a_call() {
    let program = Program::new();
    let kept = program.allocate(10 * MIB);
    let block = program.allocate(20 * MIB);
    program.free(block).expect("a free");
    let held = program.driver.held();
    let gone = program.pool.home_gone(&program.driver);
    assert_eq!(gone, (10 * MIB, 30 * MIB));
    assert_eq!(program.driver.held(), held, "the context's end frees it");
    assert!(!program.pool.owns(kept.address));
    assert_eq!(program.free(kept), Err(FreeError::Unknown));
}
