//! Memory that the driver handed out itself: recorded by address, so that its free has a size and a class.

use std::collections::HashMap;
use std::sync::Mutex;

use gpushim_alloc::Context;
use gpushim_trace::{Class, Kind};

use crate::base::thread::{self, Uncancelled};
use crate::cuda::types::{CUresult, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, check};
use crate::cuda::{context, green};
use crate::memory::budget::{self, Claim};
use crate::memory::{drain, policy, room, shortage};
use crate::record::events;

/// One allocation of the driver's.
#[derive(Clone, Copy)]
pub struct Allocation {
    class: Class,
    size: u64,
    device: u8,
    /// The context that it ends with, if it ends with one.
    context: Option<Context>,
    /// Whether it was taken of what the process may hold.
    counts: bool,
}

static LIVE: Mutex<Option<HashMap<u64, Allocation>>> = Mutex::new(None);

/// Whether memory of this class counts against what the process may hold of the device.
fn takes_device_memory(class: Class) -> bool {
    matches!(
        class,
        Class::Device
            | Class::Pitched
            | Class::Array
            | Class::MipmappedArray
            | Class::Vmm
            | Class::PoolAsync
    )
}

/// Whether a request of this class may have been refused because the device has no memory.
fn may_be_of_device(class: Class) -> bool {
    takes_device_memory(class) || class == Class::Unknown
}

/// The context that memory of this class ends with, if it is handed out now.
fn context_of(class: Class) -> Option<Context> {
    let ends = matches!(
        class,
        Class::Device | Class::Pitched | Class::Array | Class::MipmappedArray
    );
    ends.then(context::current).flatten().map(green::owner)
}

/// Notes and records what the driver handed out.
pub fn allocated(class: Class, address: u64, size: u64, stream: u64) {
    if address != 0 {
        allocated_on(context::device(), class, address, size, stream);
    }
}

/// As [`allocated`], on another device than the current one.
pub fn allocated_on(device: u8, class: Class, address: u64, size: u64, stream: u64) {
    noted(
        device,
        class,
        address,
        size,
        stream,
        takes_device_memory(class),
    );
}

/// As [`allocated_on`], of what takes memory only when a graph runs.
pub fn captured_on(device: u8, class: Class, address: u64, size: u64, stream: u64) {
    noted(device, class, address, size, stream, false);
}

fn noted(device: u8, class: Class, address: u64, size: u64, stream: u64, counts: bool) {
    // It keeps this device, whatever context is current when it is freed.
    let allocation = Allocation {
        class,
        size,
        device,
        context: context_of(class),
        counts,
    };
    if let Ok(mut live) = LIVE.lock() {
        live.get_or_insert_default().insert(address, allocation);
    }
    events::forwarded(Kind::Alloc, class, allocation.device, address, size, stream);
}

/// What [`forget`] removed from this table and from the trace: for [`freed`] if the driver freed it, for [`restore`] if
/// it refused.
pub type Taken = Option<(Allocation, Option<u32>)>;

/// Takes an address out before the driver frees it: after that, the address may be another's.
pub fn forget(address: u64) -> Taken {
    let allocation = LIVE.lock().ok()?.as_mut()?.remove(&address)?;
    Some((allocation, events::leaving(allocation.class, address)))
}

/// The driver refused the free: the address is still in use.
pub fn restore(address: u64, entry: Taken) {
    if let (Some((allocation, stack)), Ok(mut live)) = (entry, LIVE.lock()) {
        let Allocation {
            class,
            size,
            device,
            ..
        } = allocation;
        if let Some(stack) = stack {
            events::stays(class, device, address, size, stack);
        }
        live.get_or_insert_default().insert(address, allocation);
    }
}

/// Records a free that the driver carried out.
pub fn freed(address: u64, entry: Taken, stream: u64) {
    let Some((allocation, in_trace)) = entry else {
        return;
    };
    let Allocation {
        class,
        size,
        device,
        context,
        counts,
    } = allocation;
    match context {
        Some(context) => budget::give_in(context, size),
        None if counts => budget::give(device.into(), size),
        None => {}
    }
    match in_trace {
        Some(_) => events::forwarded(Kind::Free, class, device, address, size, stream),
        None => events::left(class, device, size),
    }
}

/// As [`free`], of device memory. Device memory that we hold ourselves is not the program's to free.
pub fn free_memory(address: u64, stream: u64, call: impl FnOnce() -> u32) -> u32 {
    if drain::owns(address) {
        return INVALID_VALUE;
    }
    free(address, stream, call)
}

/// A free by the driver, with its bookkeeping around it.
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

/// Calls the driver for memory that is not the pool's. If it has none, the cache is given back and the driver asked
/// again before the program gets an error.
pub fn forward(class: Class, bytes: u64, call: impl FnMut() -> CUresult) -> CUresult {
    forward_on(None, class, bytes, call)
}

/// As [`forward`], for memory of a device that need not be the current one.
pub fn forward_on(
    device: Option<i32>,
    class: Class,
    bytes: u64,
    mut call: impl FnMut() -> CUresult,
) -> CUresult {
    let _uncancelled = Uncancelled::new();
    events::driver_ns();
    let Some(claim) = claim(device, class, bytes) else {
        shortage::refused(class, bytes, OUT_OF_MEMORY);
        return OUT_OF_MEMORY;
    };
    let mut result = thread::timed(&mut call);
    if result == OUT_OF_MEMORY && !policy::is_off() {
        let mut again = || {
            room::make_room();
            check(thread::timed(&mut call))
        };
        let mut asked = shortage::ask_in_turn(&mut again);
        if asked == Err(OUT_OF_MEMORY) && may_be_of_device(class) {
            let on = device.unwrap_or_else(|| context::device().into());
            asked = shortage::ask_beside_neighbours(on, bytes, again);
        }
        result = asked.map_or_else(|error| error, |()| SUCCESS);
    }
    if result == OUT_OF_MEMORY {
        shortage::refused(class, bytes, result);
    }
    if result == SUCCESS {
        match context_of(class) {
            Some(context) => claim.keep_in(context),
            None => claim.keep(),
        }
    }
    result
}

/// Takes bytes for a request, out of what is cached if need be. `None`: the limit does not allow them.
fn claim(device: Option<i32>, class: Class, bytes: u64) -> Option<Claim> {
    if budget::limit().is_none() || !takes_device_memory(class) {
        return Some(Claim::none());
    }
    let device = device.unwrap_or_else(|| context::device().into());
    budget::reserve(device, bytes).or_else(|| {
        let again = || {
            room::make_room();
            budget::reserve(device, bytes).ok_or(OUT_OF_MEMORY)
        };
        shortage::ask_in_turn(again).ok()
    })
}

/// As [`forward`], for calls on a hot path that rarely take memory.
#[inline]
pub fn retry(mut call: impl FnMut() -> CUresult) -> CUresult {
    match call() {
        OUT_OF_MEMORY => forward_unsized(call),
        result => result,
    }
}

/// As [`forward`], for calls that take memory of an unknown size.
pub fn forward_unsized(call: impl FnMut() -> CUresult) -> CUresult {
    forward(Class::Unknown, 0, call)
}

/// As [`forward_unsized`], for a device that need not be the current one.
pub fn forward_unsized_on(device: i32, call: impl FnMut() -> CUresult) -> CUresult {
    forward_on(Some(device), Class::Unknown, 0, call)
}
