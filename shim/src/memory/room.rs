//! What pools give back to the driver when memory is short elsewhere in the process.

use std::sync::OnceLock;
use std::thread::sleep;
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

/// How long another process's request waits for a thread of this one, each time: its own patience is some seconds.
const FOR_NEIGHBOURS: Duration = Duration::from_millis(100);
/// How often it looks whether work is over, and how long it waits before the second look, and twice as long each time from then on:
/// an event that was just recorded completes when the device gets to this process, which takes turns on it with the other one.
const LOOKS: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// What else gives memory back.
pub struct Else {
    /// Of a device or of all; whether it waits for work, and how long for other threads. Returns the bytes.
    pub give_back: fn(Option<i32>, bool, Duration) -> u64,
    /// About so many bytes of a device, without a wait for work; how long it waits for other threads. Returns the bytes.
    pub give_complete: fn(i32, u64, Duration) -> u64,
}

static ELSE: OnceLock<Else> = OnceLock::new();

/// Registers what else gives memory back.
pub fn when_short(give_back: Else) {
    // Registered once; a second registration is the same functions.
    let _ = ELSE.set(give_back);
}

fn others(device: Option<i32>, waits: bool, patience: Duration) -> u64 {
    ELSE.get()
        .map_or(0, |others| (others.give_back)(device, waits, patience))
}

/// Gives back what is free, after the work that uses it where `waits`: of all pools, or of those of the
/// device of one that needs memory. Returns the bytes.
pub fn trim(asking: Option<PoolId>, waits: bool) -> u64 {
    let device = asking.map(|asking| asking.device);
    of_pools(device, asking, waits) + others(device, waits, PATIENCE)
}

fn of_pools(device: Option<i32>, but: Option<PoolId>, waits: bool) -> u64 {
    registry::on(device)
        .filter(|entry| but != Some(entry.pool.id()))
        .map(|entry| entry.pool.make_room(device::driver(), waits, PATIENCE))
        .sum()
}

/// Another process has no memory on a device: about this many bytes go back of what no work uses any more. Memory that the
/// driver gave as allocations goes back when the driver's own wait for the context is over. Returns the bytes.
pub fn for_neighbour(device: i32, bytes: u64) -> u64 {
    let (mut given, mut wait) = (0, FIRST_WAIT);
    for look in 0..LOOKS {
        if look > 0 {
            sleep(wait);
            wait *= 2;
        }
        given += give_complete(device, bytes - given);
        if given >= bytes {
            break;
        }
    }
    given
}

fn give_complete(device: i32, bytes: u64) -> u64 {
    let mut given = registry::used().map_or(0, |pool| pool.give_complete(device));
    for entry in registry::on(Some(device)) {
        let missing = bytes.saturating_sub(given);
        if missing > 0 {
            let pool = &entry.pool;
            given += pool.give_complete(device::driver(), missing, FOR_NEIGHBOURS);
        }
    }
    let missing = bytes.saturating_sub(given);
    match ELSE.get().filter(|_| missing > 0) {
        Some(others) => given + (others.give_complete)(device, missing, FOR_NEIGHBOURS),
        None => given,
    }
}

/// Memory of a device was short for a page of a segment: pools give theirs back. Returns the bytes.
pub fn make_room_on(device: i32) -> u64 {
    release_broken();
    let cached = registry::used().map_or(0, |pool| pool.make_room(Some(device)));
    cached + of_pools(Some(device), None, true)
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
    others(None, true, LONG);
}
