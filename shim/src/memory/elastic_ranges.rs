//! PyTorch's expandable segments, with memory only for live tensors (`GPUSHIM_ELASTIC`).
//!
//! PyTorch reserves addresses, makes memory of 2 or 20 MiB and maps it where tensors need room. From
//! PyTorch's library, `cuMemCreate` gives a *promise* instead: a handle without memory, as long as
//! there is memory for another tensor. `cuMemMap` of a promise maps a part of a range
//! (`gpushim_alloc::elastic`), whose pages get memory when tensors are announced there.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::{LazyLock, Mutex, MutexGuard};

use cudarc::driver::sys;
use gpushim_alloc::elastic::PAGE;
use gpushim_trace::Class;

use crate::base::lock::lock;
use crate::base::thread::Uncancelled;
use crate::cuda::types::{CUresult, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS};
use crate::memory::elastic::{self, OfDevice};
use crate::memory::elastic_sites::{self, Trust};
use crate::memory::passthrough::{self, Request};
use crate::memory::physical::{self, DESCRIPTOR};
use crate::memory::shared_parts;

/// Set in the handle of a promise. The driver's handles are addresses.
const MARK: u64 = 1 << 63;

/// A handle without memory.
#[derive(Clone, Copy)]
struct Promise {
    device: i32,
    bytes: u64,
    /// Kinds of handles for other processes that were asked for.
    kinds: sys::CUmemAllocationHandleType,
    flags: sys::CUmemAllocationProp_st__bindgen_ty_1,
    /// Address that it was mapped at last. `None`: it is *open*.
    mapped: Option<u64>,
}

/// Addresses that PyTorch has reserved and not mapped yet, and the place that did so.
struct Reservation {
    base: u64,
    bytes: u64,
    caller: usize,
}

/// Promises by their handles, the number of the last one, and reservations.
#[derive(Default)]
struct Promises {
    all: BTreeMap<u64, Promise>,
    last: u64,
    /// Bytes of all open promises, by device.
    open: BTreeMap<i32, u64>,
    reserved: Vec<Reservation>,
}

static PROMISES: LazyLock<Mutex<Promises>> = LazyLock::new(Mutex::default);

impl Promises {
    /// Notes that a promise is mapped at an address, or released.
    fn close(&mut self, promise: Promise) {
        if promise.mapped.is_none() {
            *self.open.entry(promise.device).or_default() -= promise.bytes;
        }
    }
}

/// Locks the promises for a handle. `None`: it is none of a promise.
fn promises(handle: u64) -> Option<MutexGuard<'static, Promises>> {
    (handle & MARK != 0).then(|| lock(&PROMISES))
}

/// Notes addresses that the place at a return address has reserved. Their device is that of the
/// first promise that is mapped there.
pub fn reserved(base: u64, bytes: u64, caller: *const c_void) {
    if elastic::is_on() && elastic_sites::trust(caller) != Trust::None {
        let caller = caller as usize;
        lock(&PROMISES).reserved.push(Reservation {
            base,
            bytes,
            caller,
        });
    }
}

/// Makes a promise for the place at a return address. `None`: the driver must make memory.
///
/// The thread may have no context yet: this may be its first call.
///
/// # Safety
/// `handle` is null or the caller's to be written.
pub unsafe fn create(
    handle: *mut u64,
    bytes: u64,
    properties: &sys::CUmemAllocationProp,
    caller: *const c_void,
) -> Option<CUresult> {
    let (device, flags) = (properties.location.id, properties.allocFlags);
    let kinds = properties.requestedHandleTypes;
    let is_plain = flags.usage == 0 && flags.compressionType == 0 && kinds.0 & !DESCRIPTOR == 0;
    if !elastic::is_on() || elastic_sites::trust(caller) == Trust::None {
        return None;
    }
    if handle.is_null() || !is_plain || bytes == 0 || !bytes.is_multiple_of(PAGE) {
        return None;
    }
    let _uncancelled = Uncancelled::new();
    let pool = elastic::on(device)?;
    let mut promises = lock(&PROMISES);
    if promises.reserved.is_empty() && !pool.has_ranges() {
        return None;
    }
    let open = promises.open.get(&device).copied().unwrap_or_default();
    if !pool.may_map(open, bytes) {
        drop(promises);
        let request = Request {
            device: Some(device),
            ..Request::new(Class::Vmm, bytes)
        };
        return Some(passthrough::allocate(request, || OUT_OF_MEMORY, || (0, 0)));
    }
    promises.last += 1;
    let made = MARK | promises.last;
    let promise = Promise {
        device,
        bytes,
        kinds,
        flags,
        mapped: None,
    };
    promises.all.insert(made, promise);
    promises.open.insert(device, open + bytes);
    // SAFETY: not null, and the caller's to be written.
    unsafe { handle.write(made) };
    Some(SUCCESS)
}

/// Takes a promise back. Mapped parts stay. False: the handle is none of a promise.
pub fn release(handle: u64) -> bool {
    promises(handle).is_some_and(|mut promises| {
        let promise = promises.all.remove(&handle);
        promise.inspect(|one| promises.close(*one)).is_some()
    })
}

/// Writes what a promise was asked for with. False: the handle is none of a promise.
///
/// # Safety
/// `properties` is null or the caller's to be written.
pub unsafe fn describe(handle: u64, properties: *mut sys::CUmemAllocationProp) -> bool {
    let promise = promises(handle).and_then(|promises| promises.all.get(&handle).copied());
    let Some(promise) = promise.filter(|_| !properties.is_null()) else {
        return false;
    };
    let mut told = physical::properties_on(promise.device);
    (told.requestedHandleTypes, told.allocFlags) = (promise.kinds, promise.flags);
    // SAFETY: not null, and the caller's to be written.
    unsafe { properties.write(told) };
    true
}

/// Maps the bytes of a promise from an offset on. The driver maps all of a handle or nothing.
/// `None`: the handle is none of a promise.
pub fn map(address: u64, (bytes, offset): (u64, u64), handle: u64) -> Option<CUresult> {
    let mut promises = promises(handle)?;
    let promise = *promises.all.get(&handle)?;
    let pool = elastic::at(promise.device)?;
    if (bytes, offset) != (promise.bytes, 0) {
        return Some(if bytes == 0 {
            INVALID_VALUE
        } else {
            NOT_SUPPORTED
        });
    }
    promises.close(promise);
    let mapped = Some(address);
    promises.all.insert(handle, Promise { mapped, ..promise });
    let _uncancelled = Uncancelled::new();
    let mut trial = None;
    let around = |one: &Reservation| (one.base..one.base + one.bytes).contains(&address);
    if let Some(at) = promises.reserved.iter().position(around) {
        let Reservation {
            base,
            bytes,
            caller,
        } = promises.reserved.swap_remove(at);
        let is_trusted = elastic_sites::trust(caller as *const c_void) == Trust::Full;
        pool.add_range(base, bytes, is_trusted);
        trial = (!is_trusted && base == address).then_some(caller as *const c_void);
    }
    Some(match pool.map(address, bytes) {
        Some(true) => {
            elastic::made(pool, address, bytes, trial);
            SUCCESS
        }
        Some(false) => OUT_OF_MEMORY,
        None => NOT_SUPPORTED,
    })
}

/// Writes a descriptor of the part that a promise is mapped at, for another process. `None`: the
/// handle is none of a promise.
///
/// # Safety
/// `shared` is null or the caller's to be written, for a kind of handle that is a descriptor.
pub unsafe fn export(shared: *mut c_void, handle: u64, kind: u32) -> Option<CUresult> {
    let promises = promises(handle)?;
    let Promise {
        bytes,
        kinds,
        mapped,
        ..
    } = *promises.all.get(&handle)?;
    drop(promises);
    let Some(address) = mapped.filter(|_| !shared.is_null() && kind & kinds.0 == DESCRIPTOR) else {
        return Some(INVALID_VALUE);
    };
    Some(match shared_parts::export(address, bytes) {
        Ok(file) => {
            // SAFETY: not null, and the caller's to be written.
            unsafe { shared.cast::<RawFd>().write(file) };
            SUCCESS
        }
        Err(error) => error,
    })
}

/// Unmaps a part of a range. `None`: it is in no range.
pub fn unmap(address: u64, bytes: u64) -> Option<CUresult> {
    let pool = around(address)?;
    let _uncancelled = Uncancelled::new();
    Some(match pool.unmap(address, bytes)? {
        Ok(()) => {
            elastic::left(pool, address..address.saturating_add(bytes));
            SUCCESS
        }
        Err(error) => error,
    })
}

/// Lets devices access all ranges and segments of the range's device. `None`: the address is in no
/// range, or there is no list.
///
/// # Safety
/// `access` is null or points to `count` structures.
pub unsafe fn allow(
    address: u64,
    access: *const sys::CUmemAccessDesc,
    count: usize,
) -> Option<CUresult> {
    // The driver refuses a list that is not there.
    let pool = around(address).filter(|_| !access.is_null())?;
    for at in 0..count {
        // SAFETY: there are as many; the enum is read as the integer that C has there.
        let (location, flags) = unsafe {
            let one = access.add(at);
            let flags = (&raw const (*one).flags).cast::<u32>().read();
            ((*one).location.id, flags)
        };
        if location == pool.pages().device {
            continue;
        }
        if let Err(error) = pool.change_access(location, flags != 0) {
            return Some(error);
        }
    }
    Some(SUCCESS)
}

/// Removes the range that begins at an address, before its addresses are freed.
///
/// # Errors
/// The driver's, if the work that may use the range cannot be waited for.
pub fn unreserved(base: u64) -> Result<(), CUresult> {
    lock(&PROMISES).reserved.retain(|one| one.base != base);
    let _uncancelled = Uncancelled::new();
    let removed = elastic::all().find_map(|pool| elastic::remove(pool, base, true));
    removed.unwrap_or(Ok(()))
}

/// True if an address is in a mapped part of a range.
pub fn has(address: u64) -> bool {
    around(address).is_some()
}

/// Finds the device in whose range a part is mapped at an address.
fn around(address: u64) -> Option<&'static OfDevice> {
    let is_mapped = |pool: &&OfDevice| pool.has_range(address, 1) && pool.find(address).is_some();
    elastic::all().find(is_mapped)
}
