//! Stream-ordered memory: from our pools, in the order of the streams.

use gpushim_core::mempool::{FreeError, Stream};
use gpushim_core::trace::Class;

use crate::base::thread;
use crate::cuda::functions::real;
use crate::cuda::types::{
    CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CUresult, DevicePtr, Handle, INVALID_CONTEXT,
    INVALID_VALUE, OUT_OF_MEMORY, SUCCESS,
};
use crate::cuda::{captures, context, primary};
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::pools::{self, Entry};
use crate::memory::{allocator, growth, memory_info, paged, passthrough, shortage};
use crate::record::{events, trace};

/// The stream that a handle means; `per_thread`: to a `_ptsz` function.
#[inline]
pub fn named(stream: Handle, per_thread: bool) -> u64 {
    match stream as u64 {
        0 if per_thread => Stream::PER_THREAD,
        0 => Stream::LEGACY,
        handle => handle,
    }
}

/// Whether a call on this stream becomes a part of a graph; an error of the driver's if it cannot be told.
#[inline(always)]
fn asked_captured(stream: u64) -> Result<bool, CUresult> {
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

/// What a free of a live block on a stream comes to that takes part in a capture in a way that the driver
/// does not allow. On the legacy stream it invalidates the captures of the others (measured on an H100).
#[cold]
fn refused(stream: u64, error: CUresult) -> CUresult {
    if error == CAPTURE_IMPLICIT {
        // As any use of that stream does; asking whether it captures does not.
        // SAFETY: the stream is the legacy one.
        thread::call(|| unsafe { real::cuStreamQuery(stream as Handle) });
    }
    error
}

/// Whether a call on this stream becomes a part of a graph, or may.
#[inline]
fn is_captured(stream: u64) -> bool {
    asked_captured(stream) != Ok(false)
}

/// Asks the driver once more if it fails: such a question may report the failure of earlier work.
fn twice(mut ask: impl FnMut() -> CUresult) -> Result<(), CUresult> {
    thread::call(|| match ask() {
        SUCCESS => Ok(()),
        _ => match ask() {
            SUCCESS => Ok(()),
            error => Err(error),
        },
    })
}

/// The stream of a free of ours; else what the driver says of it. The address must not reach the driver: the
/// first one of a segment would take the whole segment with it.
fn freed_on(handle: u64) -> Result<Stream, CUresult> {
    if let Some(target) = pools::target(handle) {
        return Ok(target.stream);
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` is ours to write.
    twice(|| unsafe { real::cuStreamGetCtx(handle as Handle, &mut context) })?;
    let target = pools::target(handle).ok_or(INVALID_CONTEXT)?;
    Ok(target.stream)
}

/// The stream and the pool of a request. `None`: the driver must answer.
#[inline]
fn served(bytes: usize, stream: u64, pool: Option<u64>) -> Option<(&'static Entry, Stream)> {
    if bytes == 0 || !pools::is_enabled() || is_captured(stream) {
        return None;
    }
    let target = pools::target(stream)?;
    let entry = match pool {
        Some(pool) => pools::of(pool)
            .filter(|entry| !entry.is_aside() && entry.is_on_device_of(target.stream))?,
        None => target.entry?,
    };
    Some((entry, target.stream))
}

/// Memory for a stream, from a pool or from its device's current one. `None`: the driver must answer.
#[inline]
fn allocate(bytes: usize, stream: u64, pool: Option<u64>) -> Option<Result<u64, CUresult>> {
    let (entry, stream) = served(bytes, stream, pool)?;
    allocate_from(entry, stream, bytes as u64)
}

/// The address of memory that is there at once, for callers with another road.
#[inline]
pub fn allocate_at_once(bytes: usize, stream: u64, pool: Option<u64>) -> Option<u64> {
    let (entry, stream) = served(bytes, stream, pool)?;
    let grant = entry.pool.try_allocate(stream, bytes as u64)?;
    events::granted_on(&grant, entry.class(), entry.device, stream.handle);
    Some(grant.address)
}

/// Memory for a stream from a pool. `None`: the driver must answer.
#[inline]
pub fn allocate_from(entry: &Entry, stream: Stream, bytes: u64) -> Option<Result<u64, CUresult>> {
    if let Some(grant) = entry.pool.try_allocate(stream, bytes) {
        events::granted_on(&grant, entry.class(), entry.device, stream.handle);
        return Some(Ok(grant.address));
    }
    allocate_slowly(entry, stream, bytes)
}

#[cold]
fn allocate_slowly(entry: &Entry, stream: Stream, bytes: u64) -> Option<Result<u64, CUresult>> {
    trace::open();
    growth::begins();
    events::driver_ns();
    let asked = shortage::ask(|| {
        let asked = entry.pool.allocate(pools::driver(), stream, bytes);
        // That it steps aside is no shortage.
        asked.map_err(|error| entry.pool.refusal().map_or(error, |_| INVALID_VALUE))
    });
    match asked {
        Ok(grant) => {
            events::granted_on(&grant, entry.class(), entry.device, stream.handle);
            Some(Ok(grant.address))
        }
        Err(_) if entry.steps_aside() => None,
        Err(error) => {
            if error == OUT_OF_MEMORY {
                let figures = memory_info::of_device();
                events::out_of_memory(entry.class(), bytes, error, figures, memory_info::of_pools);
            }
            Some(Err(error))
        }
    }
}

/// Notes memory of the driver's: device, class, address, bytes, stream.
type Note = fn(u8, Class, u64, u64, u64);

/// Memory from the driver's own pools: for graphs, and where ours do not serve.
pub fn forward(
    address: *mut DevicePtr,
    bytes: usize,
    pool: Option<u64>,
    stream: u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    // What becomes a part of a graph takes memory when the graph runs, and never goes back by itself.
    let (claims, note): (_, Note) = match is_captured(stream) {
        true => (Class::GraphNode, passthrough::captured_on),
        false => (Class::PoolAsync, passthrough::allocated_on),
    };
    // Of the stream's device, whatever is current.
    let of_pool = pool.and_then(pools::of).map(|entry| entry.device);
    let device = of_pool.or_else(|| pools::device_of(stream));
    let result = allocator::forward_on(device, claims, bytes as u64, call);
    if result == SUCCESS && !address.is_null() {
        // SAFETY: the driver wrote the address.
        let address = unsafe { *address };
        if address != 0 {
            let device = device.and_then(|device| u8::try_from(device).ok());
            let device = device.unwrap_or_else(context::device);
            note(device, Class::PoolAsync, address, bytes as u64, stream);
        }
    } else if result == OUT_OF_MEMORY && !address.is_null() {
        // The driver was not asked if that is the limit's answer.
        // SAFETY: not null, and the caller's to be written.
        unsafe { *address = 0 };
    }
    result
}

/// Serves one of the four functions that allocate.
#[inline]
fn serve(
    address: *mut DevicePtr,
    bytes: usize,
    pool: Option<u64>,
    stream: u64,
    call: impl FnMut() -> CUresult,
) -> CUresult {
    if !address.is_null() {
        match allocate(bytes, stream, pool) {
            Some(Ok(block)) => {
                // SAFETY: not null, and the caller's to be written.
                unsafe { *address = block };
                return SUCCESS;
            }
            Some(Err(error)) => {
                // What the driver leaves there when it fails (measured on an H200).
                // SAFETY: as above.
                unsafe { *address = 0 };
                return error;
            }
            None => {}
        }
    }
    forward(address, bytes, pool, stream, call)
}

/// Memory of ours that is freed on a stream. `None`: it is not ours.
#[inline]
pub fn free_on(address: DevicePtr, stream: u64) -> Option<CUresult> {
    let entry = pools::owner(address)?;
    let stream = match asked_captured(stream) {
        // A graph can only free what it allocates; the capture goes on (measured on an H100).
        Ok(true) => return Some(INVALID_VALUE),
        Ok(false) => freed_on(stream),
        // The driver looks at the address first.
        Err(_) if !is_live(entry, address) => return Some(INVALID_VALUE),
        Err(error) => return Some(refused(stream, error)),
    };
    Some(stream.map_or_else(|error| error, |stream| free_from(entry, address, stream)))
}

fn is_live(entry: &Entry, address: DevicePtr) -> bool {
    let found = entry.pool.find(address);
    found.is_some_and(|found| found.address == address)
}

#[inline]
fn free_from(entry: &Entry, address: DevicePtr, stream: Stream) -> CUresult {
    let (class, device) = (entry.class(), entry.device);
    let seen = |freed: &_| events::freed_on(freed, class, device, stream.handle);
    code(entry.pool.free(stream, address, seen))
}

fn code(result: Result<(), FreeError<CUresult>>) -> CUresult {
    match result {
        Ok(()) => SUCCESS,
        Err(FreeError::Unknown | FreeError::NotLive) => INVALID_VALUE,
        Err(FreeError::Driver(error)) => error,
    }
}

/// Memory of ours that is freed without a stream: any work of the current context may be using it, or
/// of the context in which `cudaMalloc` made it.
pub fn free_anywhere(address: DevicePtr) -> Option<CUresult> {
    let entry = pools::owner(address)?;
    if entry.class() == Class::Device {
        return Some(free_of_device(entry, address));
    }
    // Without a context the driver takes it back, too. It must not get the address of ours.
    let context = context::current().or_else(|| primary::of(entry.device));
    let stream = |context| Stream {
        context,
        handle: Stream::EVERY,
        thread: 0,
    };
    Some(context.map_or(INVALID_CONTEXT, |context| {
        free_from(entry, address, stream(context))
    }))
}

fn free_of_device(entry: &Entry, address: DevicePtr) -> CUresult {
    let found = entry.pool.find(address);
    let seen = |freed: &_| events::freed_on(freed, Class::Device, entry.device, Stream::EVERY);
    let result = code(entry.pool.free_where_made(address, seen));
    if let Some(found) = found.filter(|_| result == SUCCESS) {
        paged::freed(found.context);
    }
    result
}

/// Serves the two functions that free.
///
/// The driver takes back memory of `cuMemAlloc` too: what came from that pool goes back there, where the
/// fence covers the stream's work with all other.
#[inline]
fn free(address: DevicePtr, stream: u64, call: impl FnOnce() -> CUresult) -> CUresult {
    if let Some(result) = free_on(address, stream) {
        return result;
    }
    if captures::any()
        && let Some((start, _)) = allocator::used().and_then(|pool| pool.find(address))
    {
        match asked_captured(stream) {
            Ok(false) => {}
            Err(error) if start == address => return refused(stream, error),
            _ => return INVALID_VALUE,
        }
    }
    if let Some(error) = refusal(address, stream) {
        return error;
    }
    match allocator::free(address) {
        Some(Ok(())) => SUCCESS,
        Some(Err(error)) => error,
        None => passthrough::free_memory(address, stream, call),
    }
}

/// What the driver says of a stream on which memory of the pool is to be freed, if it is none.
fn refusal(address: DevicePtr, stream: u64) -> Option<CUresult> {
    if pools::target(stream).is_some() {
        return None;
    }
    allocator::used()?.find(address)?;
    let mut context = std::ptr::null_mut();
    // SAFETY: `context` is ours to write.
    match thread::call(|| unsafe { real::cuStreamGetCtx(stream as Handle, &mut context) }) {
        SUCCESS => None,
        error => Some(error),
    }
}

driver_hooks! {
    /// Memory from the device's current pool.
    fn cuMemAllocAsync(address: *mut DevicePtr, bytes: usize, stream: Handle) {
        // SAFETY: the caller's arguments, unchanged; so in every hook of this file.
        serve(address, bytes, None, named(stream, false), || unsafe {
            real::cuMemAllocAsync(address, bytes, stream)
        })
    }
    /// Memory from the device's current pool, per-thread default stream.
    fn cuMemAllocAsync_ptsz(address: *mut DevicePtr, bytes: usize, stream: Handle) {
        // SAFETY: as above.
        serve(address, bytes, None, named(stream, true), || unsafe {
            real::cuMemAllocAsync_ptsz(address, bytes, stream)
        })
    }
    /// Memory from a pool.
    fn cuMemAllocFromPoolAsync(
        address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle,
    ) {
        // SAFETY: as above.
        serve(address, bytes, Some(pool as u64), named(stream, false), || unsafe {
            real::cuMemAllocFromPoolAsync(address, bytes, pool, stream)
        })
    }
    /// Memory from a pool, per-thread default stream.
    fn cuMemAllocFromPoolAsync_ptsz(
        address: *mut DevicePtr, bytes: usize, pool: Handle, stream: Handle,
    ) {
        // SAFETY: as above.
        serve(address, bytes, Some(pool as u64), named(stream, true), || unsafe {
            real::cuMemAllocFromPoolAsync_ptsz(address, bytes, pool, stream)
        })
    }
    /// Memory back to its pool, in the order of a stream.
    fn cuMemFreeAsync(address: DevicePtr, stream: Handle) {
        // SAFETY: as above.
        free(address, named(stream, false), || unsafe { real::cuMemFreeAsync(address, stream) })
    }
    /// Memory back to its pool, in the order of a stream, per-thread default stream.
    fn cuMemFreeAsync_ptsz(address: DevicePtr, stream: Handle) {
        // SAFETY: as above.
        free(address, named(stream, true), || unsafe {
            real::cuMemFreeAsync_ptsz(address, stream)
        })
    }
}
