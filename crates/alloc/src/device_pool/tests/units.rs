//! What single calls answer.

use super::probe::Probe;
use crate::device_pool::{DevicePool, Settings};
use crate::handles::Context;
use crate::policy::Reuse;
use crate::sim::{Call, DeviceSim, Error};
use crate::types::{FreeError, Source, Stamp};
use std::sync::Arc;

const C: Context = Context(1);

fn pool(settings: Settings) -> Arc<DevicePool<Probe>> {
    let sim = DeviceSim::new(1 << 30);
    sim.add_context(C, 0);
    Probe::pool(
        sim,
        Settings {
            margin: Some(0),
            ..settings
        },
    )
}

#[test]
fn unknown_and_double_frees() {
    let pool = pool(Settings::default());
    assert_eq!(pool.free(512, |_| ()), Err(FreeError::Unknown));
    let grant = pool.allocate(C, 5000).unwrap();
    assert_eq!(
        pool.free(grant.address + 512, |_| ()),
        Err(FreeError::Unknown)
    );
    assert_eq!(pool.find(grant.address + 4999), Some((grant.address, 5000)));
    assert_eq!(pool.find(grant.address + grant.size), None);
    assert_eq!(pool.free(grant.address, |_| ()), Ok(()));
    assert_eq!(pool.free(grant.address, |_| ()), Err(FreeError::NotLive));
    assert_eq!(pool.find(grant.address), None);
}

#[test]
fn the_largest_free_block() {
    const MIB: u64 = 1 << 20;
    let pool = pool(Settings::default());
    assert_eq!(pool.largest_free(0), 0);
    let blocks = [4, 4, 6].map(|mib| pool.allocate(C, mib * MIB).unwrap().address);
    pool.free(blocks[0], |_| ()).unwrap();
    assert_eq!(pool.largest_free(0), 4 * MIB);
    pool.free(blocks[2], |_| ()).unwrap();
    assert_eq!(pool.largest_free(0), 6 * MIB);
    assert_eq!(pool.largest_free(1), 0, "another device");
}

#[test]
fn a_synchronised_context_makes_hits() {
    let pool = pool(Settings {
        thread_cache: false,
        ..Settings::default()
    });
    let grant = pool.allocate(C, 1 << 20).unwrap();
    assert_eq!(grant.source, Source::Grown);
    pool.free(grant.address, |_| ()).unwrap();
    assert_eq!(pool.try_allocate(C, 1 << 20), None);
    let mark = pool.mark(C);
    pool.synchronized(C, mark);
    let again = pool.try_allocate(C, 1_000_000).unwrap();
    assert_eq!((again.address, again.source), (grant.address, Source::Hit));
    assert_eq!(pool.device().sim.calls(Call::Record), 0);
}

#[test]
fn exported_memory_is_never_handed_out_again() {
    let pool = pool(Settings::default());
    let grant = pool.allocate(C, 4 << 20).unwrap();
    pool.exported(grant.address + 100);
    pool.free(grant.address, |_| ()).unwrap();
    let mark = pool.mark(C);
    pool.synchronized(C, mark);
    assert_eq!(pool.try_allocate(C, 4 << 20), None);
    pool.decay();
    assert_eq!(pool.stats(None).reserved, 0);
}

#[test]
fn what_is_not_asked_for_decays() {
    let pool = pool(Settings::default());
    let grant = pool.allocate(C, 4 << 20).unwrap();
    pool.free(grant.address, |_| ()).unwrap();
    let given: Vec<u64> = (0..6).map(|_| pool.decay()).collect();
    assert_eq!(given.iter().sum::<u64>(), 4 << 20);
    assert_eq!(given[..3], [0, 0, 0]);
}

#[test]
fn a_strict_free_that_meets_a_beginning_capture_succeeds() {
    let strict = || {
        pool(Settings {
            reuse: Reuse::Strict,
            ..Settings::default()
        })
    };
    // The driver knows of the capture, the pool does not yet.
    let (met, failed) = (strict(), strict());
    met.device().sim.capture_begin(C, None);
    for (pool, answer) in [
        (met, Ok(())),
        (failed, Err(FreeError::Driver(Error::Failed))),
    ] {
        pool.device().sim.fail(Call::Synchronize, 1);
        let block = pool.allocate(C, 4096).unwrap();
        assert_eq!(pool.free(block.address, |_| ()), answer);
        assert_eq!(pool.find(block.address), None);
    }
}

#[test]
fn a_block_comes_after_its_last_free() {
    let pool = pool(Settings::default());
    let block = pool.allocate(C, 4096).unwrap();
    assert_eq!(block.after, Stamp(0));
    pool.free(block.address, |_| Stamp(7)).unwrap();
    // By another thread, from the cache of this one; then by this one again.
    let other = std::thread::scope(|scope| {
        let run = || {
            let block = pool.allocate(C, 4096).unwrap();
            pool.free(block.address, |_| Stamp(9)).unwrap();
            block
        };
        scope.spawn(run).join().unwrap()
    });
    assert_eq!((other.address, other.after), (block.address, Stamp(7)));
    let again = pool.allocate(C, 4096).unwrap();
    assert_eq!((again.address, again.after), (block.address, Stamp(9)));
}
