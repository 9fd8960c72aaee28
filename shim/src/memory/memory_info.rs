//! The answers of `cuMemGetInfo`: the driver's figures, with the cache counted as free and the
//! limit as the total.

use std::thread;
use std::time::{Duration, Instant};

use crate::cuda::types::{CUresult, SUCCESS};
use crate::cuda::{context, device};
use crate::memory::{caches, driver_pools, limit};
use crate::record::events::Held;

/// Longest time that a query waits for memory that is being given back to the driver, and the time
/// between two checks.
const PATIENCE: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(50);

/// Asks the driver for the current device's figures, in bytes, and corrects them. `call` writes
/// them through these pointers. A null pointer is not written.
///
/// # Safety
/// Each pointer is null or valid for reads and writes.
pub unsafe fn ask(
    free: *mut usize,
    total: *mut usize,
    mut call: impl FnMut() -> CUresult,
) -> CUresult {
    let mut since = None;
    loop {
        let device = i32::from(context::device());
        let before = returns(device);
        let result = call();
        if result != SUCCESS {
            return result;
        }
        // SAFETY: the caller upholds the contract of this function.
        unsafe { adjust(free.as_mut(), total.as_mut()) };
        if before.is_some() && before == returns(device) {
            return result;
        }
        // Memory was given back meanwhile, and may be in neither figure.
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return result;
        }
        thread::sleep(PAUSE);
    }
}

/// Number of times that memory of a device was given back to the driver; `None` while some is being
/// given back.
fn returns(device: i32) -> Option<u64> {
    caches::all().try_fold(0, |sum, cache| Some(sum + cache.returns(device)?))
}

/// Corrects the driver's figures, in bytes, for the current device.
fn adjust(free: Option<&mut usize>, total: Option<&mut usize>) {
    let limit = limit::limit();
    if limit.is_none() && !caches::any() {
        return;
    }
    let device = i32::from(context::device());
    let of_caches = caches::all().map(|cache| cache.unused(device));
    let (unused, cached) = of_caches.fold((0, 0), |(unused, cached), of| {
        (unused + of.all, cached + of.cached)
    });
    let mut free = free;
    if let Some(free) = free.as_deref_mut() {
        *free += cached as usize;
    }
    if let Some(limit) = limit {
        driver_pools::count(device);
        // Memory that is cached for later requests is available.
        let available = limit::free(device).map_or(0, |free| free.saturating_add(unused));
        limited(free, total, limit, available);
    }
}

/// Returns free and total bytes of the current context's device, by the driver's count; zeros
/// without a context.
pub fn of_device() -> (u64, u64) {
    let of = |context| device::driver().memory_of(context).unwrap_or((0, 0));
    context::current().map_or((0, 0), of)
}

/// Returns the bytes that the caches of a device hold; `None` if no cache serves the process. Walks
/// all blocks, under each pool's lock.
pub fn of_caches(device: i32) -> Option<Held> {
    caches::any().then(|| {
        caches::all().fold(Held::default(), |sum, cache| {
            let held = cache.held(device);
            Held {
                allocated: sum.allocated + held.allocated,
                reserved: sum.reserved + held.reserved,
                quarantined: sum.quarantined + held.quarantined,
                largest_free: sum.largest_free.max(held.largest_free),
            }
        })
    })
}

/// Returns the bytes that the caches of a device hold from the driver. `None` while another thread
/// has the lock of one.
pub fn held_now(device: u8) -> Option<u64> {
    let device = i32::from(device);
    caches::all().try_fold(0, |held, cache| Some(held + cache.held_now(device)?))
}

fn limited(free: Option<&mut usize>, total: Option<&mut usize>, limit: u64, available: u64) {
    if let Some(free) = free {
        *free = (*free).min(available.min(limit) as usize);
    }
    if let Some(total) = total {
        *total = (*total).min(limit as usize);
    }
}
