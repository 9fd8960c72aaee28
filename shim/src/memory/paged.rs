//! The memory of `cudaMalloc` under the policy `vmm`: in pages, from the default pool of its device.
//!
//! Its blocks belong to no stream: a block may be handed out again when all work submitted to the
//! context of its allocation before the free is over, which is what the driver's own free waits for.

use gpushim_alloc::Stream;
use gpushim_alloc::device_pool::Device;
use gpushim_alloc::stream_pool::Driver;
use gpushim_alloc::{Context, Reuse};

use crate::base::settings;
use crate::cuda::types::{CUresult, DevicePtr, SUCCESS};
use crate::cuda::{captures, context, device, devices, green, primary};
use crate::memory::registry::{self, Access, RegisteredPool};
use crate::memory::{drain, peer_access, policy, pools, stream_ordered, surplus};
use crate::record::events;

/// The address of memory in the current context. `None`: the driver must answer.
pub fn allocate(bytes: u64) -> Option<Result<u64, CUresult>> {
    if !policy::is_paged() {
        return None;
    }
    let context = context::current().filter(|context| !green::is(*context))?;
    let entry = pool(device::driver().ordinal(context).ok()?)?;
    stream_ordered::allocate_from(entry, Stream::all_of(context), bytes)
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
pub fn context_made(context: Context) {
    peer_access::known(context);
    if policy::is_paged() && peer_access::any() {
        for owner in peer_access::of(context) {
            follow(context, owner);
        }
    }
}

/// A context is about to be forgotten: others may still work on its memory, which is free then.
pub fn context_gone(context: Context) {
    if policy::is_paged() && peer_access::any() {
        for other in peer_access::of(context) {
            // What cannot be waited for has ended, too.
            let _ = drain::context(other);
        }
    }
    peer_access::gone(context);
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

/// Memory of ours that is freed without a stream: any work of the current context may be using it, or
/// of the context in which `cudaMalloc` made it.
pub fn free_anywhere(address: DevicePtr) -> Option<CUresult> {
    if let Some(result) = free(address) {
        return Some(result);
    }
    let entry = registry::owner(address)?;
    // The driver frees memory without a current context, too. It must not see an address of ours.
    let context = context::current().or_else(|| primary::of(entry.device));
    let stream = context.map_or(Stream::all_of_device(entry.device), Stream::all_of);
    Some(stream_ordered::free_from(entry, address, stream))
}

/// A block of `cudaMalloc` in pages is freed. `None`: there is none at this address.
pub fn free(address: DevicePtr) -> Option<CUresult> {
    let entry = registry::owner(address)?;
    let found = entry.pool.find(address).filter(|found| found.for_all)?;
    Some(free_where_made(entry, address, found.context))
}

fn free_where_made(entry: &RegisteredPool, address: DevicePtr, made: Context) -> CUresult {
    let seen = |freed: &_| events::freed(freed, &entry.numbers);
    let result = stream_ordered::code(entry.pool.free_where_made(address, seen));
    if result == SUCCESS {
        freed(made);
        if let Some(most) = settings::config().cache_max {
            keep_at_most(entry, most);
        }
    }
    result
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
