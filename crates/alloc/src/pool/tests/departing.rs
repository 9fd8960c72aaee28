//! Tests of frees and look-ups while memory is being given back to the driver.

use super::machine::backing;
use super::threads::Slow;
use crate::handles::Context;
use crate::handles::Stream;
use crate::policy::Policy;
use crate::pool::{Pool, Settings};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Makes a pool with 20 MiB of free memory. Returns its address, too.
fn pool(policy: Policy) -> (Arc<(Slow, Pool<Slow>)>, u64) {
    let settings = Settings {
        backing: backing(policy),
        ..Settings::default()
    };
    let both = Arc::new((Slow::new(0), Pool::new(0, settings)));
    let (driver, pool) = &*both;
    let stream = Stream {
        context: Context(1),
        handle: 7,
        thread: 0,
    };
    let block = pool.allocate(driver, stream, 20 * MIB).expect("memory");
    pool.free(stream, block.address, |_| ()).expect("a free");
    (both, block.address)
}

#[test]
fn memory_that_the_driver_has_is_not_held() {
    for policy in [Policy::Vmm, Policy::Blocks] {
        let (both, _) = pool(policy);
        let (ours, (answers, from)) = (both.clone(), channel());
        let ask = move || {
            let _ = answers.send((ours.1.stats().reserved, ours.0.held()));
        };
        let (driver, pool) = &*both;
        *driver.meanwhile.lock() = Some(Box::new(ask));
        assert!(pool.trim(driver, 0) >= 20 * MIB);
        let (reserved, held) = from.recv().expect("memory went back");
        assert_eq!(reserved, held, "{policy:?}");
    }
}

#[test]
fn an_address_is_the_pool_s_until_the_driver_has_it() {
    let (both, block) = pool(Policy::Blocks);
    let (ours, (answers, from)) = (both.clone(), channel());
    let ask = move || {
        let (owned, answer) = channel();
        thread::spawn(move || owned.send(ours.1.owns(block)));
        let early = answer.recv_timeout(Duration::from_millis(20));
        let _ = answers.send((early, answer));
    };
    let (driver, pool) = &*both;
    *driver.meanwhile.lock() = Some(Box::new(ask));
    assert!(pool.trim(driver, 0) >= 20 * MIB);
    let (early, answer) = from.recv().expect("memory went back");
    assert_eq!(early, Err(RecvTimeoutError::Timeout));
    // By then the driver knows that the memory is freed.
    assert_eq!(answer.recv(), Ok(false));
}
