//! Memory that the driver handed out itself: recorded by address, so that its free has a size and a
//! class.

use std::collections::HashMap;
use std::sync::Mutex;

use gpushim_alloc::Context;
use gpushim_trace::{Class, Kind};

use crate::base::thread::{self, Uncancelled};
use crate::cuda::captures::relaxed;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, Handle, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, check};
use crate::cuda::{context, green};
use crate::memory::limit::{self, Claim, Place};
use crate::memory::{context_drain, driver_pools, make_room, mappings, policy, shortage};
use crate::record::events;

/// One allocation of the driver.
#[derive(Clone, Copy)]
pub struct Allocation {
    class: Class,
    size: u64,
    device: u8,
    /// The context whose end frees it, as [`owner_of`] returns it.
    context: Context,
    /// Its place in the count for the limit, if it is counted.
    place: Option<Place>,
}

impl Allocation {
    /// Returns its class, device and bytes, as its events have them.
    fn recorded(&self) -> (Class, u8, u64) {
        (self.class, self.device, self.size)
    }
}

static LIVE: Mutex<Option<HashMap<u64, Allocation>>> = Mutex::new(None);

/// A request that the driver must serve.
#[derive(Clone, Copy)]
pub struct Request {
    pub class: Class,
    /// Bytes asked for, or the most that are needed.
    pub bytes: u64,
    /// The device whose memory it takes; `None` for the current device.
    pub device: Option<i32>,
    pub stream: u64,
    /// Handle of the pool that the program named, or of the physical memory that it maps.
    pub source: Option<u64>,
    /// True if not the call takes the memory, but the launch of a graph.
    pub is_captured: bool,
}

impl Request {
    /// A request in the current context.
    pub fn new(class: Class, bytes: u64) -> Request {
        Request {
            class,
            bytes,
            device: None,
            stream: 0,
            source: None,
            is_captured: false,
        }
    }

    fn ordinal(&self) -> i32 {
        self.device.unwrap_or_else(|| context::device().into())
    }

    /// True if the call takes memory of the device.
    fn takes(&self) -> bool {
        let of_host = || self.source.is_some_and(driver_pools::is_of_host);
        match self.class {
            Class::Device | Class::Pitched | Class::Array | Class::MipmappedArray | Class::Vmm => {
                true
            }
            Class::PoolAsync => !self.is_captured && !of_host(),
            _ => false,
        }
    }

    /// Claims the most that the driver may take; caches make room for it. `None`: the limit does
    /// not allow it.
    fn claim(&self) -> Option<Claim> {
        if limit::limit().is_none() || !self.takes() {
            return Some(Claim::none());
        }
        let device = self.ordinal();
        let is_of_pool = self.class == Class::PoolAsync;
        let reserve = match is_of_pool {
            true => driver_pools::reserve,
            false => limit::reserve,
        };
        let most = match is_of_pool {
            true => driver_pools::growth(self.bytes),
            false => self.bytes,
        };
        reserve(device, self.bytes).or_else(|| {
            let again = || {
                make_room::make_room(None);
                driver_pools::trim(device);
                reserve(device, self.bytes).ok_or(OUT_OF_MEMORY)
            };
            shortage::ask(device, most, again).ok()
        })
    }

    /// Counts the memory that the driver gave at an address, or by a handle, in the context
    /// that owns it. Returns its place, which goes into the entry.
    fn keep(&self, claim: Claim, context: Context, address: u64, size: u64) -> Option<Place> {
        limit::limit()?;
        let place = match self.class {
            Class::VmmMap => {
                let memory = self.source.map(Place::of_physical);
                return memory.filter(|memory| limit::share(*memory));
            }
            _ if !self.takes() => return None,
            Class::PoolAsync => {
                let device = self.ordinal();
                let pool = self.source.unwrap_or_else(|| driver_pools::current(device));
                driver_pools::served(pool, device, size, claim);
                return Some(Place::of_pool(pool));
            }
            // Mappings keep the memory, too: its handle may be released first.
            Class::Vmm => {
                claim.keep(Place::of_physical(address), size);
                return None;
            }
            Class::Array | Class::MipmappedArray => Place::of_array(context, address),
            _ => Place::of_block(context, address, size),
        };
        claim.keep(place, size);
        Some(place)
    }
}

/// Calls the driver for a request. If it has no memory, caches are flushed and it is asked again
/// before the program gets an error. `made` returns the address or handle that the call made, and
/// the bytes; the address 0 means nothing.
pub fn allocate(
    request: Request,
    call: impl FnMut() -> CUresult,
    made: impl FnOnce() -> (u64, u64),
) -> CUresult {
    let _uncancelled = Uncancelled::new();
    events::driver_ns();
    let Some(mut claim) = request.claim() else {
        shortage::refused(request.class, request.bytes, OUT_OF_MEMORY);
        return OUT_OF_MEMORY;
    };
    let result = ask(request, &mut claim, call);
    if result == SUCCESS
        && let (address, size) = made()
        && address != 0
    {
        let context = owner_of(request.class);
        let allocation = Allocation {
            class: request.class,
            size,
            device: u8::try_from(request.ordinal()).unwrap_or_else(|_| context::device()),
            context,
            place: request.keep(claim, context, address, size),
        };
        noted(address, allocation, request.stream);
    }
    result
}

/// Calls the driver. If it has no memory, makes room and calls it again.
fn ask(request: Request, claim: &mut Claim, mut call: impl FnMut() -> CUresult) -> CUresult {
    let Request { class, bytes, .. } = request;
    let result = thread::timed(&mut call);
    if result != OUT_OF_MEMORY {
        return result;
    }
    if policy::is_off() {
        shortage::refused(class, bytes, result);
        return result;
    }
    claim.let_others();
    let mut again = || {
        make_room::make_room(None);
        check(thread::timed(&mut call))
    };
    let mut asked = shortage::ask_in_turn(&mut again);
    // The cause may be that the device has no memory left.
    if asked == Err(OUT_OF_MEMORY) && (request.takes() || class == Class::Unknown) {
        asked = shortage::ask_beside_peers(request.ordinal(), bytes, again);
    }
    let result = asked.map_or_else(|error| error, |()| SUCCESS);
    if result == OUT_OF_MEMORY {
        shortage::refused(class, bytes, result);
    }
    result
}

/// Notes and records memory that does not count for the limit.
pub fn allocated(class: Class, address: u64, size: u64) {
    if address != 0 {
        let (device, place) = (context::device(), None);
        let allocation = Allocation {
            class,
            size,
            device,
            context: owner_of(class),
            place,
        };
        noted(address, allocation, 0);
    }
}

/// Notes and records an allocation. It keeps its device, whichever context is current when it is
/// freed.
fn noted(address: u64, allocation: Allocation, stream: u64) {
    let (class, device, size) = allocation.recorded();
    if let Ok(mut live) = LIVE.lock() {
        live.get_or_insert_default().insert(address, allocation);
    }
    events::forwarded(Kind::Alloc, class, device, address, size, stream);
}

/// Returns the context whose end frees memory of a class that is allocated now: the current one, or
/// the owner of a green one. `Context(0)` for memory that outlives contexts.
fn owner_of(class: Class) -> Context {
    match class {
        Class::Device | Class::Pitched | Class::Array | Class::MipmappedArray => {
            context::current().map_or(Context(0), green::owner)
        }
        _ => Context(0),
    }
}

/// Entry that [`forget`] removed from this table and from the trace: for [`freed`] if the driver
/// freed the memory, for [`restore`] if it refused.
pub type Taken = Option<(Allocation, Option<u32>)>;

/// Removes an address before the driver frees it: afterwards it may belong to another allocation.
pub fn forget(address: u64) -> Taken {
    let allocation = LIVE.lock().ok()?.as_mut()?.remove(&address)?;
    Some((allocation, events::leaving(allocation.class, address)))
}

/// Adds an entry again whose free the driver refused: the address is still in use.
pub fn restore(address: u64, entry: Taken) {
    if let (Some((allocation, stack)), Ok(mut live)) = (entry, LIVE.lock()) {
        let (class, device, size) = allocation.recorded();
        if let Some(stack) = stack {
            events::stays(class, device, address, size, stack);
        }
        live.get_or_insert_default().insert(address, allocation);
    }
}

/// Forgets the device memory of a context that is about to end. Returns it by address, for [`ended`]
/// or [`restore`].
pub fn forget_context(doomed: Context) -> Vec<(u64, Taken)> {
    let mut its = Vec::new();
    if let Ok(mut live) = LIVE.lock() {
        let live = live.get_or_insert_default();
        its.extend(live.extract_if(|_, allocation| allocation.context == doomed));
    }
    let taken = its.into_iter().map(|(address, allocation)| {
        let in_trace = events::leaving(allocation.class, address);
        (address, Some((allocation, in_trace)))
    });
    taken.collect()
}

/// Records the free of memory that went with its context.
pub fn ended(address: u64, entry: Taken) {
    let Some((allocation, in_trace)) = entry else {
        return;
    };
    let (class, device, size) = allocation.recorded();
    match in_trace {
        Some(_) => events::ended(class, device, address, size),
        None => events::left(class, device, size),
    }
}

/// Records a free that the driver carried out.
pub fn freed(address: u64, entry: Taken, stream: u64) {
    let Some((allocation, in_trace)) = entry else {
        return;
    };
    let (class, device, size) = allocation.recorded();
    if let Some(place) = allocation.place {
        if stream != 0 && class != Class::PoolAsync {
            // The driver frees the memory when the stream has reached the free.
            // SAFETY: the driver has just accepted the stream.
            let wait = || unsafe { real::cuStreamSynchronize(stream as Handle) };
            thread::timed(|| relaxed(wait));
        }
        limit::give(place);
        if let Some(pool) = place.pool() {
            driver_pools::freed(pool, size);
        }
    }
    match in_trace {
        Some(_) => events::forwarded(Kind::Free, class, device, address, size, stream),
        None => events::left(class, device, size),
    }
}

/// Frees device memory as [`free`], unless this library itself holds it: the program may not free
/// that.
pub fn free_memory(address: u64, stream: u64, call: impl FnOnce() -> u32) -> u32 {
    if context_drain::owns(address) {
        return INVALID_VALUE;
    }
    free(address, stream, call)
}

/// Frees memory by the driver, and updates the count and the trace.
pub fn free(address: u64, stream: u64, call: impl FnOnce() -> u32) -> u32 {
    events::driver_ns();
    let entry = forget(address);
    let result = thread::timed(call);
    if result == SUCCESS {
        freed(address, entry, stream);
    } else {
        restore(address, entry);
    }
    result
}

/// Frees all mappings in a range by the driver, as [`free`].
pub fn unmap(address: u64, bytes: u64, call: impl FnOnce() -> u32) -> u32 {
    events::driver_ns();
    let taken = mappings::take(address..address.saturating_add(bytes));
    let entries: Vec<_> = taken.iter().map(|(at, _)| (*at, forget(*at))).collect();
    let result = thread::timed(call);
    if result != SUCCESS {
        mappings::restore(taken);
    }
    for (at, entry) in entries {
        match result {
            SUCCESS => freed(at, entry, 0),
            _ => restore(at, entry),
        }
    }
    result
}

/// Calls the driver as [`allocate`], on a hot path that rarely takes memory.
#[inline]
pub fn retry(mut call: impl FnMut() -> CUresult) -> CUresult {
    match call() {
        OUT_OF_MEMORY => forward(None, call),
        result => result,
    }
}

/// Calls the driver as [`allocate`], for memory of unknown size, by default of the current device.
pub fn forward(device: Option<i32>, call: impl FnMut() -> CUresult) -> CUresult {
    let request = Request {
        device,
        ..Request::new(Class::Unknown, 0)
    };
    allocate(request, call, || (0, 0))
}
