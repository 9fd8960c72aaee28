//! Memory that pools give back to the driver when memory is short elsewhere in the process.

use std::thread::sleep;
use std::time::Duration;

use gpushim_alloc::PoolId;

use crate::cuda::captures;
use crate::memory::caches::{self, News, Search};

/// Longest wait of a thread that needs memory for a pool in which another thread looks for memory:
/// the other thread may wait for this one.
const PATIENCE: Duration = Duration::from_millis(10);
/// Longest such wait of a thread that holds nothing for which others wait.
const LONG: Duration = Duration::from_secs(2);

/// Longest single wait of another process's request for a thread of this process: the other waits
/// for seconds in total.
const FOR_PEERS: Duration = Duration::from_millis(100);
/// Number of checks for complete work, and the pause before the second check, which doubles each
/// time. An event that was just recorded completes when the device gets to this process: the two
/// processes take turns on it.
const LOOKS: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Gives unused memory back to the driver. Returns the bytes.
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

/// Gives back about this many bytes that no work uses any more, for another process without memory
/// on a device. Memory in driver allocations is given back after the driver's own wait for the
/// context. Returns the bytes.
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

/// Gives back about this many bytes that no work uses any more. Returns the bytes.
pub fn give_complete(device: i32, bytes: u64) -> u64 {
    caches::all().fold(0, |given, cache| match bytes.saturating_sub(given) {
        0 => given,
        missing => given + cache.give_complete(device, missing, FOR_PEERS),
    })
}

/// Releases memory that waits for captures, if the driver has invalidated them or nothing can end
/// them. True if there were such captures. The default streams of other threads cannot be queried.
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

/// Gives unused memory back to the driver, after waits for its work. Returns the bytes.
pub fn make_room(device: Option<i32>) -> u64 {
    release_broken();
    trim(None, device, true)
}

/// Gives all unused memory back, and waits for memory that others are giving back. The caller must
/// not hold a pool.
pub fn make_room_patiently() {
    release_broken();
    search(&Search {
        device: None,
        asking: None,
        waits: true,
        patience: LONG,
    });
}
