//! What pools give back to the driver when memory is short elsewhere in the process.

use std::thread::sleep;
use std::time::Duration;

use gpushim_alloc::PoolId;

use crate::cuda::captures;
use crate::memory::caches::{self, News, Search};

/// How long a thread that needs memory waits for a pool in which another thread looks for memory: the other thread may
/// be waiting for this one.
const PATIENCE: Duration = Duration::from_millis(10);
/// The same for a thread that holds nothing that others wait for.
const LONG: Duration = Duration::from_secs(2);

/// How long another process's request waits for a thread of this one, each time: its own patience is some seconds.
const FOR_PEERS: Duration = Duration::from_millis(100);
/// How often it looks whether work is over, and how long it waits before the second look, and twice as long each time from then on:
/// an event that was just recorded completes when the device gets to this process, which takes turns on it with the other one.
const LOOKS: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Gives back what is free. Returns the bytes.
pub fn trim(asking: Option<PoolId>, device: Option<i32>, waits: bool) -> u64 {
    search(&Search {
        device,
        asking,
        waits,
        patience: PATIENCE,
    })
}

fn search(search: &Search) -> u64 {
    caches::all().map(|cache| cache.make_room(search)).sum()
}

/// Another process has no memory on a device: about this many bytes go back of what no work uses any more. Memory that the
/// driver gave as allocations goes back when the driver's own wait for the context is over. Returns the bytes.
pub fn for_peer_process(device: i32, bytes: u64) -> u64 {
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

/// Gives back about this many bytes of what no work uses any more. Returns the bytes.
pub fn give_complete(device: i32, bytes: u64) -> u64 {
    caches::all().fold(0, |given, cache| match bytes.saturating_sub(given) {
        0 => given,
        missing => given + cache.give_complete(device, missing, FOR_PEERS),
    })
}

/// Memory is short: releases memory that waits for captures which the driver has invalidated or which nothing can end
/// any more. Returns whether there were such captures. The default streams of other threads cannot be asked about.
pub fn release_broken() -> bool {
    if !captures::any() {
        return false;
    }
    let broken = captures::broken();
    for number in &broken {
        caches::tell(News::CaptureBroken(*number));
    }
    !broken.is_empty()
}

/// Memory was short. Returns the bytes given back.
pub fn make_room(device: Option<i32>) -> u64 {
    release_broken();
    trim(None, device, true)
}

/// Gives everything back that can be, and waits for what others are giving back. The caller must not hold a pool.
pub fn make_room_patiently() {
    release_broken();
    search(&Search {
        device: None,
        asking: None,
        waits: true,
        patience: LONG,
    });
}
