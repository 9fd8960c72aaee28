//! The memory of `cudaMalloc`: requests and frees, served in pages or in driver allocations.
//!
//! Its blocks belong to no stream. A freed block may be handed out again once all work is complete
//! that was submitted to the context of its allocation before the free. The driver's own free waits
//! for the same work.

use gpushim_alloc::{Context, FreeError, Reuse, Stream};

use crate::base::{settings, thread};
use crate::cuda::types::{CUresult, DevicePtr, INVALID_VALUE, SUCCESS};
use crate::cuda::{captures, context, device, green, primary};
use crate::memory::registry::{self, Kind, RegisteredPool};
use crate::memory::{
    context_pools, elastic, peer_access, policy, pool_life, stream_ordered, threshold,
};
use crate::record::events;

/// Allocates in the current context and returns the address. `None`: the driver must answer.
#[inline]
pub fn allocate(bytes: u64) -> Option<Result<u64, CUresult>> {
    match allocate_at_once(bytes) {
        Some(address) => Some(Ok(address)),
        None => allocate_slowly(bytes),
    }
}

/// Allocates cached memory in the current context and returns the address. `None`: none is cached.
#[inline(always)]
pub fn allocate_at_once(bytes: u64) -> Option<u64> {
    let context = serving(bytes)?;
    let device = thread::with(|t| t.device.get());
    let entry = match registry::serving_all(device.into()) {
        Some(entry) => Some(entry).filter(|entry| !entry.is_aside()),
        None => context_pools::known(context),
    }?;
    let address = stream_ordered::allocate_cached(entry, Stream::all_of(context), bytes)?;
    if captures::any() {
        keep(entry, address);
    }
    Some(address)
}

/// Returns the current context if requests of this many bytes are served in it.
#[inline]
fn serving(bytes: u64) -> Option<Context> {
    context::current().filter(|context| bytes != 0 && !green::is(*context))
}

#[cold]
fn allocate_slowly(bytes: u64) -> Option<Result<u64, CUresult>> {
    let context = serving(bytes)?;
    if !policy::has_pools() {
        return None;
    }
    let device = device::driver().ordinal_of(context).ok()?;
    let entry = match policy::is_paged(device) {
        true => pool_life::serving_all(device),
        false => context_pools::pool(context, device),
    }?;
    let result = stream_ordered::allocate_slowly(entry, Stream::all_of(context), bytes);
    if captures::any()
        && let Some(Ok(address)) = result
    {
        keep(entry, address);
    }
    result
}

/// Keeps a block for the captures in progress: the driver would not have handed it out while
/// streams capture.
#[cold]
fn keep(entry: &RegisteredPool, address: u64) {
    let refusing = captures::refusing();
    if !refusing.is_empty() {
        entry.pool.keep(address, refusing);
    }
}

/// Frees memory without an order of streams. `None`: the driver must answer. `at_once`: frees only
/// memory of `cudaMalloc`, for callers that have another way to free the rest.
#[inline(always)]
pub fn free(address: DevicePtr, at_once: bool) -> Option<CUresult> {
    elastic::free(address).or_else(|| free_from(address, at_once))
}

/// Frees memory of a pool. `None`: no pool has the address.
#[inline(never)]
fn free_from(address: DevicePtr, at_once: bool) -> Option<CUresult> {
    if let Some(entry) = registry::owner_in_pages(address) {
        return free_in(entry, address, at_once).or((!at_once).then_some(INVALID_VALUE));
    }
    // A pool of driver allocations has to look for the block: mostly, one search is enough.
    registry::of_allocations().find_map(|entry| {
        free_in(entry, address, at_once)
            .or_else(|| entry.pool.owns(address).then_some(INVALID_VALUE))
    })
}

/// Frees a block of a pool. `None`: no block begins at the address, or none that may be freed
/// `at_once`.
///
/// Work of the current context may use the block, and so may work of the context in which
/// `cudaMalloc` made it.
#[inline(always)]
fn free_in(entry: &RegisteredPool, address: DevicePtr, at_once: bool) -> Option<CUresult> {
    // The driver frees memory without a current context, too. It must not get an address of this
    // library's pools.
    let ask = || context::current().or_else(|| primary::of(entry.device));
    let current = (!at_once).then(|| ask().unwrap_or(Context(0)));
    if captures::any() && !captures::refusing().is_empty() {
        entry.pool.keep_freed(address);
    }
    let seen = |freed: &_| events::freed(freed, &entry.numbers);
    match entry.pool.free_in_context(address, current, seen) {
        Ok(Context(0)) => {}
        Ok(context) if settings::config().reuse == Reuse::Strict => wait(context),
        Ok(_) => {}
        Err(FreeError::Unknown) => return None,
        Err(error) => return Some(stream_ordered::code(error)),
    }
    context_pools::freed(entry);
    if let Some(most) = settings::config().cache_max {
        keep_at_most(entry, most);
    }
    Some(SUCCESS)
}

/// Waits on the host after a free in a context, as the user asked by strict reuse.
#[cold]
fn wait(context: Context) {
    // Nothing can be waited for while a stream captures.
    if captures::any() {
        return;
    }
    let others = peer_access::of(context);
    for one in others.into_iter().chain([context]) {
        let wait = || device::driver().synchronize(one).err().unwrap_or(SUCCESS);
        threshold::synchronize(Some(one), None, wait);
    }
}

/// Flushes the cache of `cudaMalloc` beyond `most` bytes, as far as its work is known to be
/// complete.
#[cold]
fn keep_at_most(entry: &RegisteredPool, most: u64) {
    let stats = entry.pool.stats();
    let cached = match entry.kind {
        Kind::Context => stats.cached(),
        Kind::Streams | Kind::Device => stats.cached_for_all(),
    };
    let surplus = cached.saturating_sub(most);
    if surplus > 0 && !captures::any() {
        let keep = stats.reserved.saturating_sub(surplus);
        entry.pool.trim(device::driver(), keep);
    }
}
