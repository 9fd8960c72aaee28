//! Frees, and questions, while memory is on its way back to the driver.

use super::leaving::{DOOMED, Interrupted};
use crate::device_pool::DevicePool;
use crate::types::FreeError;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Two blocks that are free.
fn two(pool: &DevicePool<Interrupted>) -> [u64; 2] {
    let blocks = [20 * MIB, 30 * MIB].map(|bytes| pool.allocate(DOOMED, bytes).unwrap().address);
    blocks.map(|block| pool.free(block, |_| ()).map_or(0, |()| block))
}

fn interrupted(test: impl Fn(&Arc<DevicePool<Interrupted>>)) {
    let pool = Interrupted::pool();
    test(&pool);
    assert_eq!(pool.device().sim.findings(), Vec::<String>::new());
}

/// A free in another thread, and its answer.
fn free_elsewhere(pool: &Arc<DevicePool<Interrupted>>, block: u64) -> Receiver<String> {
    let (answers, from) = channel();
    let pool = pool.clone();
    thread::spawn(move || answers.send(format!("{:?}", pool.free(block, |_| ()))));
    from
}

#[test]
fn what_is_to_go_back_cannot_be_freed_once_more() {
    interrupted(|pool| {
        let blocks = two(pool);
        let (ours, (answers, from)) = (pool.clone(), channel());
        let free = move || {
            // The driver is being told of the first one.
            let _ = answers.send(ours.free(blocks[1], |_| ()));
        };
        *pool.device().before.lock() = Some(Box::new(free));
        assert!(pool.trim(None, 0) >= 50 * MIB);
        assert_eq!(from.recv(), Ok(Err(FreeError::NotLive)));
    });
}

#[test]
fn a_free_waits_for_the_driver_that_is_being_told_of_its_address() {
    interrupted(|pool| {
        let blocks = two(pool);
        let (ours, (answers, from)) = (pool.clone(), channel());
        let free = move || {
            let answer = free_elsewhere(&ours, blocks[0]);
            let early = answer.recv_timeout(Duration::from_millis(20));
            let _ = answers.send((early, answer));
        };
        *pool.device().before.lock() = Some(Box::new(free));
        assert!(pool.trim(None, 0) >= 50 * MIB);
        let (early, answer) = from.recv().unwrap();
        assert_eq!(early, Err(RecvTimeoutError::Timeout));
        // From then on the driver knows what is there.
        assert_eq!(answer.recv().as_deref(), Ok("Err(Unknown)"));
    });
}

#[test]
fn memory_that_the_driver_has_is_not_cached() {
    interrupted(|pool| {
        two(pool);
        let (ours, (answers, from)) = (pool.clone(), channel());
        let miss = move || {
            let _ = answers.send((ours.cached_bytes(0), ours.device().sim.held(0)));
        };
        *pool.device().after.lock() = Some(Box::new(miss));
        assert!(pool.trim(None, 0) >= 50 * MIB);
        let (cached, held) = from.recv().unwrap();
        assert_eq!(cached, held);
        assert_eq!(pool.cached_bytes(0), 0);
    });
}
