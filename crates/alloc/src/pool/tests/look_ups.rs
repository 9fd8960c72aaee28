//! Tests of the number of times that a pool looks for a block by its address.

use super::machine::stream;
use super::program::MIB;
use super::threads::Slow;
use crate::handles::{Context, Stream};
use crate::per_thread;
use crate::pool::{Pool, Settings};
use crate::types::FreeError;
use rustc_hash::{FxBuildHasher, FxHasher};
use std::cell::Cell;
use std::hash::BuildHasher;

thread_local! {
    static LOOK_UPS: Cell<u32> = const { Cell::new(0) };
}

/// Counts the look-ups, additions and removals of the thread.
#[derive(Clone, Copy, Default)]
pub struct Counted(FxBuildHasher);

impl BuildHasher for Counted {
    type Hasher = FxHasher;

    fn build_hasher(&self) -> FxHasher {
        LOOK_UPS.set(LOOK_UPS.get() + 1);
        self.0.build_hasher()
    }
}

const CONTEXT: Context = Context(1);
const OTHER: Context = Context(2);
const ALL: u64 = Stream::ALL;
const ORDERED: u64 = 16;

struct Pair {
    driver: Slow,
    pool: Pool<Slow>,
}

impl Pair {
    fn new() -> Pair {
        let pool = Pool::new(0, Settings::default());
        Pair {
            driver: Slow::new(0),
            pool,
        }
    }

    fn allocate(&self, handle: u64) -> u64 {
        let on = stream(CONTEXT, handle);
        let grant = self.pool.allocate(&self.driver, on, MIB);
        grant.expect("memory").address
    }

    fn free(&self, address: u64, handle: u64) -> Result<Context, FreeError<()>> {
        let on = stream(CONTEXT, handle);
        let freed = self.pool.free(on, address, |_| ());
        freed.map(|()| CONTEXT).map_err(|_| FreeError::Unknown)
    }

    fn free_in_context(
        &self,
        address: u64,
        current: Option<Context>,
    ) -> Result<Context, FreeError<()>> {
        let freed = self.pool.free_in_context(address, current, |_| ());
        freed.map_err(|error| match error {
            FreeError::NotLive => FreeError::NotLive,
            _ => FreeError::Unknown,
        })
    }
}

fn look_ups<T>(call: impl FnOnce() -> T) -> (u32, T) {
    let before = LOOK_UPS.get();
    let result = call();
    (LOOK_UPS.get() - before, result)
}

#[test]
fn a_free_looks_its_block_up_once() {
    let pair = Pair::new();
    for handle in [ALL, ORDERED] {
        // Later frees reuse what the first one leaves in place.
        for is_warm in [false, true, true] {
            for current in [None, Some(CONTEXT), Some(OTHER)] {
                let block = pair.allocate(handle);
                let (count, freed) = look_ups(|| pair.free_in_context(block, current));
                // A stream's block is not freed without a context, but is freed in any other way.
                match (handle, current) {
                    (ALL, _) => assert_eq!(freed, Ok(CONTEXT)),
                    (_, None) => {
                        assert_eq!(freed, Err(FreeError::Unknown));
                        assert!(pair.free(block, handle).is_ok());
                    }
                    (_, Some(current)) => assert_eq!(freed, Ok(current)),
                }
                assert!(!is_warm || count == 1, "{count} in {current:?}");
            }
            for by in [ALL, ORDERED] {
                let block = pair.allocate(handle);
                let (count, freed) = look_ups(|| pair.free(block, by));
                assert!(freed.is_ok());
                assert!(!is_warm || count == 1, "{count} on {by}");
            }
        }
    }
    assert_eq!(pair.pool.stats().live, 0);
}

#[test]
fn a_block_that_is_free_is_not_live_and_what_begins_no_block_is_unknown() {
    let pair = Pair::new();
    let block = pair.allocate(ALL);
    let inside = pair.free_in_context(block + 512, Some(CONTEXT));
    assert_eq!(inside, Err(FreeError::Unknown));
    assert_eq!(pair.free_in_context(block, None), Ok(CONTEXT));
    let again = pair.free_in_context(block, Some(CONTEXT));
    assert_eq!(again, Err(FreeError::NotLive));
}

#[test]
fn a_pair_in_a_thread_cache_looks_its_block_up_once_for_each_call() {
    let pair = Pair::new();
    pair.pool.contend();
    per_thread::have(1);
    for _ in 0..4 {
        let block = pair.allocate(ORDERED);
        assert!(pair.free(block, ORDERED).is_ok());
    }
    let (count, block) = look_ups(|| pair.allocate(ORDERED));
    assert_eq!(count, 1, "it is noted as in its caller's hands");
    let (count, freed) = look_ups(|| pair.free(block, ORDERED));
    assert!(freed.is_ok());
    assert_eq!(count, 1);
    // The block is in its caller's hands, and is freed without a stream.
    let block = pair.allocate(ORDERED);
    assert_eq!(
        pair.free_in_context(block, None),
        Err(FreeError::Unknown),
        "of a stream"
    );
    assert_eq!(pair.free_in_context(block, Some(OTHER)), Ok(OTHER));
    assert_eq!(pair.pool.stats().live, 0);
}
