//! The memory of `cudaMalloc` under the policy `vmm`: in pages, from the default pool of its device.
//!
//! Its blocks belong to no stream: a block may be handed out again when all work submitted to the
//! context of its allocation before the free is over, which is what the driver's own free waits for.

use gpushim_alloc::Stream;
use gpushim_alloc::device_pool::Device;
use gpushim_alloc::stream_pool::Driver;
use gpushim_alloc::{Context, FreeError, Reuse};

use crate::base::{settings, thread};
use crate::cuda::types::{CUresult, DevicePtr, SUCCESS};
use crate::cuda::{captures, context, device, devices, primary};
use crate::memory::registry::{self, Access, RegisteredPool};
use crate::memory::{peer_access, policy, pools, stream_ordered, surplus};
use crate::record::events;

/// The address of memory in a context. `None`: the driver must answer.
pub fn allocate(context: Context, bytes: u64) -> Option<Result<u64, CUresult>> {
    if !policy::is_paged() {
        return None;
    }
    let entry = pool(device::driver().ordinal(context).ok()?)?;
    stream_ordered::allocate_slowly(entry, Stream::all_of(context), bytes)
}

/// The address of cached memory in the current context.
#[inline]
pub fn allocate_at_once(context: Context, bytes: u64) -> Option<u64> {
    let device = thread::with(|t| t.device.get());
    let entry = registry::serving_all(device.into()).filter(|entry| !entry.is_aside())?;
    stream_ordered::allocate_cached(entry, Stream::all_of(context), bytes)
}

fn pool(device: i32) -> Option<&'static RegisteredPool> {
    devices::has_virtual_memory(device).then(|| pools::serving_all(device))?
}

/// After a free in the pool of a device: the host waits, where the user wants it to.
fn freed(context: Context) {
    // Nothing can be waited for while a stream captures.
    if settings::config().reuse != Reuse::Strict || captures::any() {
        return;
    }
    let others = peer_access::of(context);
    for one in others.into_iter().chain([context]) {
        let wait = || match Device::synchronize(device::driver(), one) {
            Ok(()) => SUCCESS,
            Err(error) => error,
        };
        surplus::synchronize(Some(one), None, wait);
    }
}

/// A context was made: its work may use the memory of its device's others.
pub fn context_made(context: Context, device: i32) {
    peer_access::known(context, device);
    if policy::is_paged() && peer_access::any() {
        for owner in peer_access::of(context) {
            follow(context, owner);
        }
    }
}

/// Blocks of `owner` may have been handed out while earlier work on them was unfinished, and only `owner` was made to
/// wait for that work: an accessor that may use them from now on must wait for it, too.
fn follow(accessor: Context, owner: Context) {
    let driver = device::driver();
    if !captures::any()
        && let Ok(event) = Driver::record(driver, Stream::all_of(owner))
    {
        // Without the order the accessor's first work may be early, as it would be natively.
        let _ = Driver::order(driver, Stream::all_of(accessor), event);
        Driver::retire(driver, event);
    }
}

/// A context may use another's memory from here on, or no longer.
///
/// # Errors
/// The driver's, which twice refused access to memory that is mapped: nothing is enabled then.
pub fn peer(accessor: Context, owner: Context, enabled: bool) -> Result<(), CUresult> {
    if enabled {
        peer_access::peer(accessor, owner);
        if policy::is_paged() {
            follow(accessor, owner);
        }
    }
    let ordinal = |context| device::driver().ordinal(context).ok();
    let Some((accessor, owner)) = ordinal(accessor)
        .zip(ordinal(owner))
        .filter(|_| policy::is_paged())
    else {
        return Ok(());
    };
    let Some(entry) = pool(owner) else {
        return Ok(());
    };
    let set = || {
        entry.set_access(Access::Peers, |devices| {
            devices.retain(|device| *device != accessor);
            devices.extend(enabled.then_some(accessor));
        })
    };
    let result = set();
    if !enabled {
        // If the driver refuses, the device keeps access that it should have lost: correct programs are unaffected.
        return Ok(());
    }
    // Asked again: the first answer may be an error of earlier work.
    result.or_else(|_| set())
}

/// Frees memory of a pool without a stream; `at_once`: only what `cudaMalloc` made. `None`: no pool
/// has the address. Work of the current context may use it, or of the one where `cudaMalloc` made it.
pub fn free(address: DevicePtr, at_once: bool) -> Option<CUresult> {
    let entry = registry::owner(address)?;
    // The driver frees memory without a current context, too. It must not see an address of ours.
    let ask = || context::current().or_else(|| primary::of(entry.device));
    let current = (!at_once).then(|| ask().unwrap_or(Context(0)));
    let seen = |freed: &_| events::freed(freed, &entry.numbers);
    match entry.pool.free_in_context(address, current, seen) {
        Ok(Context(0)) => {}
        Ok(context) => freed(context),
        Err(FreeError::Unknown) if at_once => return None,
        Err(error) => return Some(stream_ordered::code(error)),
    }
    if let Some(most) = settings::config().cache_max {
        keep_at_most(entry, most);
    }
    Some(SUCCESS)
}

/// Gives back what `cudaMalloc` has cached beyond `most` bytes, as far as its work is known to be over.
#[cold]
fn keep_at_most(entry: &RegisteredPool, most: u64) {
    let stats = entry.pool.stats();
    let surplus = stats.cached_for_all().saturating_sub(most);
    if surplus > 0 && !captures::any() {
        let keep = stats.reserved.saturating_sub(surplus);
        entry.pool.trim(device::driver(), keep);
    }
}
