//! What `cuMemGetInfo` says: the driver's figures, the cache counted as free, the limit as the total.

use std::thread;
use std::time::{Duration, Instant};

use gpushim_alloc::device_pool::Device;

use crate::cuda::types::{CUresult, SUCCESS};
use crate::cuda::{context, device};
use crate::memory::{budget, driver_pools, elastic, registry};
use crate::record::events::Held;

/// How long a query waits for memory that is on its way between pools and the driver, and the interval at which it
/// checks.
const PATIENCE: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(50);

/// Asks the driver for its figures, in bytes, for the current device, and corrects them. `call` writes them to where
/// these point, or to nowhere.
///
/// # Safety
/// Each is null or valid for reads and writes.
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
        // Memory went back meanwhile, and may be in neither figure.
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return result;
        }
        thread::sleep(PAUSE);
    }
}

/// How often memory of a device went back to the driver; `None` while some is on its way.
fn returns(device: i32) -> Option<u64> {
    let of_pool = registry::used().map_or(Some(0), |pool| pool.returns(device))?;
    let mut pools = registry::all().filter(|entry| entry.device == device);
    pools.try_fold(of_pool, |sum, entry| Some(sum + entry.pool.returns()?))
}

/// Corrects the driver's figures, in bytes, for the current device.
fn adjust(free: Option<&mut usize>, total: Option<&mut usize>) {
    let limit = budget::limit();
    let is_served = registry::used().is_some() || registry::any() || elastic::any();
    if limit.is_none() && !is_served {
        return;
    }
    let device = i32::from(context::device());
    let cached = registry::used().map_or(0, |pool| pool.cached_bytes(device));
    let mut of_pools = registry::figures(device);
    // Spare pages go back before a request fails.
    let spare = elastic::stats(device).spare;
    (of_pools.unused, of_pools.cached) = (of_pools.unused + spare, of_pools.cached + spare);
    let mut free = free;
    if let Some(free) = free.as_deref_mut() {
        *free += (cached + of_pools.cached) as usize;
    }
    if let Some(limit) = limit {
        driver_pools::count(device);
        // Memory that is cached for later requests is available.
        let held = budget::held(device).saturating_sub(cached + of_pools.unused);
        limited(free, total, limit, held);
    }
}

/// Free and total bytes of the current context's device, as the driver sees them; zeros without one.
pub fn of_device() -> (u64, u64) {
    let of = |context| device::driver().memory_info(context).unwrap_or((0, 0));
    context::current().map_or((0, 0), of)
}

/// What the pools of a device hold; `None` if none serves the process. Walks all blocks, under each
/// pool's lock.
pub fn of_pools(device: i32) -> Option<Held> {
    if registry::used().is_none() && !registry::any() && !elastic::any() {
        return None;
    }
    let mut held = Held::default();
    if let Some(pool) = registry::used() {
        let stats = pool.stats(Some(device));
        (held.allocated, held.reserved) = (stats.allocated, stats.reserved);
        held.quarantined = stats.quarantined;
        held.largest_free = pool.largest_free(device);
    }
    for entry in registry::all().filter(|entry| entry.device == device) {
        let stats = entry.pool.stats();
        held.allocated += stats.allocated;
        held.reserved += stats.reserved;
        held.quarantined += stats.quarantined;
        held.largest_free = held.largest_free.max(entry.pool.largest_free());
    }
    let of_segments = elastic::stats(device);
    held.allocated += of_segments.in_use;
    held.reserved += of_segments.held;
    Some(held)
}

/// What the pools of a device hold from the driver, in bytes; `None` while one of them is at work. Waits for no lock.
pub fn held_now(device: u8) -> Option<u64> {
    let device = i32::from(device);
    let of_pool = registry::used().map_or(Some(0), |pool| pool.reserved_now(device))?;
    let mut pools = registry::all().filter(|entry| entry.device == device);
    pools.try_fold(of_pool + elastic::held(device), |held, entry| {
        Some(held + entry.pool.reserved_now()?)
    })
}

fn limited(free: Option<&mut usize>, total: Option<&mut usize>, limit: u64, held: u64) {
    if let Some(free) = free {
        *free = (*free).min(limit.saturating_sub(held) as usize);
    }
    if let Some(total) = total {
        *total = (*total).min(limit as usize);
    }
}
