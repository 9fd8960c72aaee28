//! Stream-ordered memory: requests and frees, served by this library's pools in the order of the
//! streams.

use gpushim_alloc::{FreeError, Stream};

use crate::base::thread::{self, Uncancelled};
use crate::cuda::functions::real;
use crate::cuda::types::{
    CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CUresult, DevicePtr, Handle, INVALID_CONTEXT,
    INVALID_VALUE, OUT_OF_MEMORY, SUCCESS,
};
use crate::cuda::{captures, device};
use crate::memory::registry::{self, RegisteredPool};
use crate::memory::{context_pools, miss, policy, shortage, stream_targets};
use crate::record::{events, trace};

/// True if a call on this stream becomes a part of a graph; the driver's error if that is unknown.
#[inline(always)]
pub fn asked_captured(stream: u64) -> Result<bool, CUresult> {
    if captures::any() {
        ask_captured(stream)
    } else {
        Ok(false)
    }
}

#[cold]
fn ask_captured(stream: u64) -> Result<bool, CUresult> {
    let mut status = 0;
    // SAFETY: `status` is ours to write; 1 and 2 name the default streams here.
    twice(|| unsafe { real::cuStreamIsCapturing(stream as Handle, &mut status) })?;
    match status {
        captures::INVALIDATED => Err(CAPTURE_INVALIDATED),
        status => Ok(status != 0),
    }
}

/// Returns the result of a free of a live block on a stream whose capture does not allow it. On the
/// legacy stream, the free invalidates the captures of other streams (measured on an H100).
#[cold]
pub fn refused(stream: u64, error: CUresult) -> CUresult {
    if error == CAPTURE_IMPLICIT {
        // Any use of that stream invalidates them, but the query of its capture status does not.
        // SAFETY: the stream is the legacy one.
        thread::call(|| unsafe { real::cuStreamQuery(stream as Handle) });
    }
    error
}

/// True if a call on this stream becomes a part of a graph, or may.
#[inline]
pub fn is_captured(stream: u64) -> bool {
    asked_captured(stream) != Ok(false)
}

/// Asks the driver once more if it fails: such a query may report the failure of earlier work.
fn twice(mut ask: impl FnMut() -> CUresult) -> Result<(), CUresult> {
    thread::call(|| match ask() {
        SUCCESS => Ok(()),
        _ => match ask() {
            SUCCESS => Ok(()),
            error => Err(error),
        },
    })
}

/// Returns the stream on which a pool's block is freed, or the driver's error for it. The address
/// must not reach the driver, which would free memory that the pool holds.
#[inline(always)]
fn freed_on(handle: u64) -> Result<Stream, CUresult> {
    if let Some(target) = stream_targets::target(handle) {
        return Ok(target.stream);
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` is ours to write.
    twice(|| unsafe { real::cuStreamGetCtx(handle as Handle, &mut context) })?;
    let target = stream_targets::target(handle).ok_or(INVALID_CONTEXT)?;
    Ok(target.stream)
}

/// Returns the stream and the pool of a request. `None`: the driver must answer.
#[inline(always)]
fn served(
    bytes: usize,
    stream: u64,
    pool: Option<u64>,
) -> Option<(&'static RegisteredPool, Stream)> {
    if bytes == 0 || !policy::has_pools() || is_captured(stream) {
        return None;
    }
    let target = stream_targets::target(stream)?;
    let entry = match pool {
        Some(pool) => registry::of(pool)
            .filter(|entry| !entry.is_aside() && entry.is_on_device_of(target.stream))?,
        None => target.entry?,
    };
    Some((entry, target.stream))
}

/// Allocates for a stream from a pool, or from its device's current pool. `None`: the driver must
/// answer.
#[inline(always)]
pub fn allocate(bytes: usize, stream: u64, pool: Option<u64>) -> Option<Result<u64, CUresult>> {
    let (entry, stream) = served(bytes, stream, pool)?;
    match allocate_cached(entry, stream, bytes as u64) {
        Some(address) => Some(Ok(address)),
        None => allocate_slowly(entry, stream, bytes as u64),
    }
}

/// Allocates memory that a pool can hand out at once, for callers that have another way to get
/// memory.
#[inline]
pub fn allocate_at_once(bytes: usize, stream: u64, pool: Option<u64>) -> Option<u64> {
    let (entry, stream) = served(bytes, stream, pool)?;
    allocate_cached(entry, stream, bytes as u64)
}

/// Allocates memory for a stream that a pool has cached. Returns its address.
#[inline(always)]
pub fn allocate_cached(entry: &RegisteredPool, stream: Stream, bytes: u64) -> Option<u64> {
    if entry.pool.has_caches() {
        return take_beside_caches(entry, stream, bytes);
    }
    let grant = entry.pool.try_allocate_without_caches(stream, bytes)?;
    events::granted_on(&grant, entry.device, stream.handle, &entry.numbers);
    Some(grant.address)
}

/// Allocates as [`allocate_cached`] from a pool with thread caches. A separate function, so that it
/// does not slow the other path down.
#[inline(never)]
fn take_beside_caches(entry: &RegisteredPool, stream: Stream, bytes: u64) -> Option<u64> {
    let grant = entry.pool.try_allocate(stream, bytes)?;
    events::granted_on(&grant, entry.device, stream.handle, &entry.numbers);
    Some(grant.address)
}

/// Allocates for a stream from a pool, with calls of the driver. `None`: the driver must answer.
#[cold]
pub fn allocate_slowly(
    entry: &RegisteredPool,
    stream: Stream,
    bytes: u64,
) -> Option<Result<u64, CUresult>> {
    let _uncancelled = Uncancelled::new();
    trace::open();
    miss::begins();
    events::driver_ns();
    let asked = shortage::ask(entry.device, bytes, || {
        let asked = entry.pool.allocate(device::driver(), stream, bytes);
        // A request that the pool leaves to the driver is no shortage.
        asked.map_err(|error| entry.pool.refusal().map_or(error, |_| INVALID_VALUE))
    });
    match asked {
        Ok(grant) => {
            events::granted_on(&grant, entry.device, stream.handle, &entry.numbers);
            Some(Ok(grant.address))
        }
        Err(_) if entry.steps_aside() => None,
        Err(error) => {
            if error == OUT_OF_MEMORY {
                shortage::refused(events::family(!stream.is_ordered()), bytes, error);
            }
            Some(Err(error))
        }
    }
}

/// Frees a pool's block on a stream. `None`: no pool owns the address.
#[inline(always)]
pub fn free_on(address: DevicePtr, stream: u64) -> Option<CUresult> {
    let entry = registry::owner(address)?;
    Some(match asked_captured(stream) {
        Ok(false) => match freed_on(stream) {
            Ok(stream) => free_from(entry, address, stream),
            Err(error) => error,
        },
        // A graph can only free its own allocations. The capture goes on (measured on an H100).
        Ok(true) => INVALID_VALUE,
        // The driver checks the address first.
        Err(_) if !is_live(entry, address) => INVALID_VALUE,
        Err(error) => refused(stream, error),
    })
}

fn is_live(entry: &RegisteredPool, address: DevicePtr) -> bool {
    let found = entry.pool.find(address);
    found.is_some_and(|found| found.address == address)
}

/// Frees a block into its pool, in the order of a stream. A separate function: the code that
/// records the free is inlined in functions with one caller.
#[inline(never)]
pub fn free_from(entry: &RegisteredPool, address: DevicePtr, stream: Stream) -> CUresult {
    if entry.pool.has_caches() {
        return free_beside_caches(entry, address, stream);
    }
    let seen = |freed: &_| events::freed_on(freed, stream.handle, &entry.numbers);
    let freed = entry.pool.free_without_caches(stream, address, seen);
    context_pools::freed(entry);
    freed.map_or_else(code, |()| SUCCESS)
}

/// Frees as [`free_from`] into a pool with thread caches.
#[inline(never)]
fn free_beside_caches(entry: &RegisteredPool, address: DevicePtr, stream: Stream) -> CUresult {
    let seen = |freed: &_| events::freed_on(freed, stream.handle, &entry.numbers);
    let freed = entry.pool.free(stream, address, seen);
    freed.map_or_else(code, |()| SUCCESS)
}

/// Converts an error of a free to the driver's code.
pub fn code(error: FreeError<CUresult>) -> CUresult {
    match error {
        FreeError::Unknown | FreeError::NotLive => INVALID_VALUE,
        FreeError::Driver(error) => error,
    }
}
