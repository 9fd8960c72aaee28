//! The memory of `cudaMalloc`: requests and frees, served by its pool.

use gpushim_alloc::device_pool::DevicePool;
use gpushim_alloc::{Context, FreeError};
use gpushim_trace::Class;

use crate::base::thread::Uncancelled;
use crate::cuda::device::Cuda;
use crate::cuda::types::{CUresult, INVALID_VALUE, OUT_OF_MEMORY};
use crate::cuda::{captures, context, green};
use crate::memory::{capture_notices, growth, paged, registry, room, shortage};
use crate::record::{events, trace};

/// The address of memory of the pool's in the current context. `None`: the driver must answer.
#[inline]
pub fn allocate(bytes: u64) -> Option<Result<u64, CUresult>> {
    if bytes == 0 {
        return None;
    }
    let Some(pool) = registry::pool() else {
        return paged::allocate(bytes);
    };
    let context = context::current().filter(|context| !green::is(*context))?;
    if let Some(grant) = pool.try_allocate(context, bytes) {
        events::granted(&grant, registry::numbers());
        return Some(Ok(grant.address));
    }
    Some(allocate_slowly(pool, context, bytes))
}

#[cold]
fn allocate_slowly(pool: &DevicePool<Cuda>, context: Context, bytes: u64) -> Result<u64, CUresult> {
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
            if room::trim(None, true) > 0 || is_more {
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

/// The address of memory that the pool can hand out at once, for callers that have another way to get memory.
#[inline]
pub fn allocate_at_once(bytes: u64) -> Option<u64> {
    if bytes == 0 {
        return None;
    }
    let context = context::current().filter(|context| !green::is(*context))?;
    let grant = registry::pool()?.try_allocate(context, bytes)?;
    events::granted(&grant, registry::numbers());
    Some(grant.address)
}

/// Takes an address back. `None`: it is not the pool's, and the driver must answer.
#[inline]
pub fn free(address: u64) -> Option<Result<(), CUresult>> {
    let seen = |freed: &_| events::freed(freed, registry::numbers());
    match registry::used()?.free(address, seen) {
        Ok(()) => Some(Ok(())),
        Err(FreeError::Unknown) => None,
        // The driver's result for an address that was freed before.
        Err(FreeError::NotLive) => Some(Err(INVALID_VALUE)),
        Err(FreeError::Driver(error)) => Some(Err(error)),
    }
}
