//! What comes back when memory is short while streams capture, and while graphs live.

use crate::device_pool::{DevicePool, Settings};
use crate::handles::Context;
use crate::sim::{DeviceSim, Error};

const MIB: u64 = 1 << 20;
const OURS: Context = Context(1);

/// A pool on a device of 100 MiB.
fn pool() -> DevicePool<DeviceSim> {
    let sim = DeviceSim::new(100 * MIB);
    sim.add_context(OURS, 0);
    let settings = Settings {
        margin: Some(0),
        ..Settings::default()
    };
    DevicePool::new(sim, settings)
}

/// Runs a test in which the device must find nothing wrong.
fn in_pool(test: impl Fn(&DevicePool<DeviceSim>)) {
    let pool = pool();
    test(&pool);
    assert_eq!(pool.device().findings(), Vec::<String>::new());
}

fn begin(pool: &DevicePool<DeviceSim>, capture: u64, refuses: bool) {
    pool.capture_began(capture);
    pool.device()
        .capture_begin(OURS, refuses.then_some(capture));
}

fn end(pool: &DevicePool<DeviceSim>, capture: u64, graph: Option<u64>) {
    pool.device().capture_end(0);
    pool.capture_ended(capture, graph);
}

/// Allocates and frees again.
fn pass(pool: &DevicePool<DeviceSim>, bytes: u64) -> Result<(), Error> {
    let grant = pool.allocate(OURS, bytes)?;
    pool.free(grant.address, |_| ()).expect("a live block");
    Ok(())
}

#[test]
fn a_loop_that_frees_every_block_goes_on_while_a_stream_captures() {
    in_pool(|pool| {
        begin(pool, 1, false);
        for n in 0..300 {
            assert_eq!(pass(pool, (1 + n % 40) * MIB), Ok(()), "{n}");
        }
        end(pool, 1, None);
        assert_eq!(pass(pool, 64 * MIB), Ok(()));
    });
}

#[test]
fn what_was_freed_under_a_capture_comes_back_while_its_graph_lives() {
    in_pool(|pool| {
        begin(pool, 1, false);
        pass(pool, 64 * MIB).expect("memory");
        end(pool, 1, Some(10));
        assert!(pool.stats(None).quarantined > 0, "it may be in use");
        assert_eq!(pass(pool, 60 * MIB), Ok(()));
        pool.graph_destroyed(10);
        assert_eq!(pool.stats(None).quarantined, 0);
    });
}

#[test]
fn what_the_driver_would_have_refused_to_free_stays_with_the_graph() {
    in_pool(|pool| {
        begin(pool, 1, true);
        pass(pool, 64 * MIB).expect("memory");
        end(pool, 1, Some(10));
        assert_eq!(pass(pool, 60 * MIB), Err(Error::OutOfMemory));
        pool.graph_destroyed(10);
        assert_eq!(pass(pool, 60 * MIB), Ok(()));
    });
}

#[test]
fn a_capture_that_ended_in_nothing_holds_nothing_while_another_goes_on() {
    in_pool(|pool| {
        begin(pool, 1, true);
        let grant = pool.allocate(OURS, 64 * MIB).expect("memory");
        pool.free(grant.address, |_| ()).expect("a live block");
        begin(pool, 2, true);
        assert!(pool.stats(None).quarantined > 0);
        end(pool, 1, None);
        assert_eq!(pool.stats(None).quarantined, 0, "2 began after the free");
        end(pool, 2, None);
    });
}

#[test]
fn room_for_others_is_made_of_what_waits() {
    in_pool(|pool| {
        begin(pool, 1, false);
        pass(pool, 64 * MIB).expect("memory");
        assert!(pool.make_room(None) >= 64 * MIB);
        assert_eq!(pool.stats(None).reserved, 0);
        end(pool, 1, None);
    });
}

#[test]
fn what_the_driver_would_have_refused_comes_back_once_the_capture_is_broken() {
    in_pool(|pool| {
        begin(pool, 1, true);
        pass(pool, 64 * MIB).expect("memory");
        assert_eq!(pass(pool, 60 * MIB), Err(Error::OutOfMemory));
        pool.capture_broken(1);
        assert_eq!(pass(pool, 60 * MIB), Ok(()));
        end(pool, 1, None);
    });
}

#[test]
fn what_one_capture_refuses_does_not_wait_for_another_when_memory_is_short() {
    in_pool(|pool| {
        begin(pool, 1, true);
        begin(pool, 2, false);
        pass(pool, 64 * MIB).expect("memory");
        assert_eq!(pass(pool, 60 * MIB), Err(Error::OutOfMemory));
        pool.capture_broken(1);
        assert_eq!(pass(pool, 60 * MIB), Ok(()));
    });
}
