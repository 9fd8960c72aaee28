//! The memory of `cudaMalloc`: requests and frees, served in whole blocks or in pages.

use gpushim_alloc::device_pool::DevicePool;
use gpushim_alloc::{Context, FreeError};
use gpushim_trace::Class;

use crate::base::thread::Uncancelled;
use crate::cuda::device::Cuda;
use crate::cuda::types::{CUresult, DevicePtr, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use crate::cuda::{captures, context, green};
use crate::memory::caches::Asking;
use crate::memory::{capture_notices, elastic, growth, paged, registry, room, shortage};
use crate::record::{events, trace};

/// The address of memory in the current context. `None`: the driver must answer.
#[inline]
pub fn allocate(bytes: u64) -> Option<Result<u64, CUresult>> {
    match allocate_at_once(bytes) {
        Some(address) => Some(Ok(address)),
        None => allocate_slowly(bytes),
    }
}

/// The address of cached memory in the current context.
#[inline(always)]
pub fn allocate_at_once(bytes: u64) -> Option<u64> {
    let context = serving(bytes)?;
    let Some(pool) = registry::pool() else {
        return paged::allocate_at_once(context, bytes);
    };
    let grant = pool.try_allocate(context, bytes)?;
    events::granted(&grant, registry::numbers());
    Some(grant.address)
}

/// The current context, if requests of this many bytes are served in it.
#[inline]
fn serving(bytes: u64) -> Option<Context> {
    context::current().filter(|context| bytes != 0 && !green::is(*context))
}

#[cold]
fn allocate_slowly(bytes: u64) -> Option<Result<u64, CUresult>> {
    let context = serving(bytes)?;
    match registry::pool() {
        Some(pool) => Some(allocate_whole(pool, context, bytes)),
        None => paged::allocate(context, bytes),
    }
}

fn allocate_whole(pool: &DevicePool<Cuda>, context: Context, bytes: u64) -> Result<u64, CUresult> {
    let _uncancelled = Uncancelled::new();
    trace::open();
    growth::begins();
    events::driver_ns();
    if captures::any() {
        capture_notices::close_of_ended_threads();
    }
    let device = context::device().into();
    let result = shortage::ask(device, bytes, || match pool.allocate(context, bytes) {
        Err(OUT_OF_MEMORY) => {
            let is_more = room::release_broken();
            if room::trim(Asking::Whole, None, true) > 0 || is_more {
                pool.allocate(context, bytes)
            } else {
                Err(OUT_OF_MEMORY)
            }
        }
        result => result,
    });
    match &result {
        Ok(grant) => events::granted(grant, registry::numbers()),
        Err(error) => shortage::refused(Class::Device, bytes, *error),
    }
    result.map(|grant| grant.address)
}

/// Frees memory without an order of streams. `None`: the driver must answer.
/// `at_once`: only what `cudaMalloc` made, for callers that have another way to free the rest.
#[inline(always)]
pub fn free(address: DevicePtr, at_once: bool) -> Option<CUresult> {
    elastic::free(address)
        .or_else(|| free_whole(address))
        .or_else(|| paged::free(address, at_once))
}

/// Frees a whole block. `None`: there is none at this address.
#[inline(always)]
pub fn free_whole(address: DevicePtr) -> Option<CUresult> {
    registry::used().and_then(|pool| free_from(pool, address))
}

#[inline(never)]
fn free_from(pool: &DevicePool<Cuda>, address: DevicePtr) -> Option<CUresult> {
    let seen = |freed: &_| events::freed(freed, registry::numbers());
    match pool.free(address, seen) {
        Ok(()) => Some(SUCCESS),
        Err(FreeError::Unknown) => None,
        // The driver's result for an address that was freed before.
        Err(FreeError::NotLive) => Some(INVALID_VALUE),
        Err(FreeError::Driver(error)) => Some(error),
    }
}
