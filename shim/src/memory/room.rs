//! What pools give back to the driver when memory is short elsewhere in the process.

use std::time::Duration;

use gpushim_alloc::stream_pool::PoolId;

use crate::cuda::captures;
use crate::cuda::device;
use crate::memory::registry;

/// How long a thread that needs memory waits for a pool in which another thread looks for memory: the other thread may
/// be waiting for this one.
const PATIENCE: Duration = Duration::from_millis(10);
/// The same for a thread that holds nothing that others wait for.
const LONG: Duration = Duration::from_secs(2);

/// Gives back what is free, after the work that uses it where `waits`: of all pools, or of those of the
/// device of one that needs memory. Returns the bytes.
pub fn trim(asking: Option<PoolId>, waits: bool) -> u64 {
    registry::on(asking.map(|asking| asking.device))
        .filter(|entry| asking != Some(entry.pool.id()))
        .map(|entry| entry.pool.make_room(device::driver(), waits, PATIENCE))
        .sum()
}

/// Memory is short: releases memory that waits for captures which the driver has invalidated or which nothing can end
/// any more. Returns whether there were such captures. The default streams of other threads cannot be asked about.
pub fn release_broken() -> bool {
    if !captures::any() {
        return false;
    }
    let broken = captures::broken();
    for number in &broken {
        if let Some(pool) = registry::used() {
            pool.capture_broken(*number);
        }
        registry::all().for_each(|entry| entry.pool.capture_broken(*number));
    }
    !broken.is_empty()
}

/// Memory was short for a request outside the pools. Returns the bytes given back.
pub fn make_room() -> u64 {
    release_broken();
    let cached = registry::used().map_or(0, |pool| pool.make_room(None));
    cached + trim(None, true)
}

/// Gives everything back that can be, and waits for what others are giving back. The caller must not hold a pool.
pub fn make_room_patiently() {
    release_broken();
    if let Some(pool) = registry::used() {
        pool.make_room(None);
        pool.wait_for_releases();
    }
    for entry in registry::all() {
        entry.pool.make_room(device::driver(), true, LONG);
    }
}
