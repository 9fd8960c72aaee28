//! The attributes of an address: for our blocks, the answers that the driver would give for its own.

use std::ffi::{c_int, c_uint, c_void};

use gpushim_alloc::elastic::Found;
use gpushim_alloc::stream_pool::LiveBlock;
use gpushim_alloc::{Context, device_pool};
use gpushim_trace::Class;

use crate::cuda::context;
use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, DevicePtr, SUCCESS};
use crate::hooks::driver::external;
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::registry::{self, RegisteredPool};
use crate::memory::{elastic, ipc_export, ipc_import};

/// `CU_POINTER_ATTRIBUTE_…`, by number.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
/// Asking for these tokens means that another driver is about to reach the memory.
const P2P_TOKENS: c_int = 5;
const SYNC_MEMOPS: c_int = 6;
const BUFFER_ID: c_int = 7;
const IS_LEGACY_CUDA_IPC_CAPABLE: c_int = 10;
const RANGE_START_ADDR: c_int = 11;
const RANGE_SIZE: c_int = 12;
const ALLOWED_HANDLE_TYPES: c_int = 14;
const MEMPOOL_HANDLE: c_int = 17;

/// `CU_MEMORYTYPE_DEVICE`.
const OF_DEVICE: c_int = 2;

/// An address that no memory has.
const NOWHERE: DevicePtr = 1;

/// Bits of a block's address in its id, and of its serial number above them; the highest bit keeps ours
/// apart from the driver's, which count from 1.
const OURS: u64 = 1 << 63;
const PLACE: u32 = 38;
const SERIAL: u32 = 24;

/// A live block of ours.
#[derive(Clone, Copy)]
pub struct PoolBlock {
    entry: &'static RegisteredPool,
    /// The block as its pool describes it.
    pub block: LiveBlock,
}

/// The live block that an address is in.
pub fn block(address: DevicePtr) -> Option<PoolBlock> {
    found(registry::owner(address)?, address)
}

fn found(entry: &'static RegisteredPool, address: DevicePtr) -> Option<PoolBlock> {
    let block = entry.pool.find(address)?;
    Some(PoolBlock { entry, block })
}

impl PoolBlock {
    /// A number that no other allocation has while this one lives, and none at this address had of late.
    fn id(&self) -> u64 {
        let serial = u64::from(self.block.serial) & ((1 << SERIAL) - 1);
        OURS | serial << PLACE | (self.block.address >> 9) & ((1 << PLACE) - 1)
    }

    /// Corrects the driver's answer for the block's address.
    ///
    /// # Safety
    /// `value` is null or what the driver just wrote for this attribute.
    unsafe fn amend(&self, attribute: c_int, value: *mut c_void) {
        if value.is_null() {
            return;
        }
        let yes_or_no = match attribute {
            IS_LEGACY_CUDA_IPC_CAPABLE => Some(ipc_export::is_possible(self.entry, &self.block)),
            SYNC_MEMOPS if self.block.for_all => Some(context::has_sync_memops(self.block.context)),
            _ => None,
        };
        if let Some(right) = yes_or_no {
            // SAFETY: these attributes are ints, at an address that the driver could write.
            return unsafe { value.cast::<c_int>().write_unaligned(right.into()) };
        }
        let right = match attribute {
            CONTEXT if self.block.for_all => self.block.context.0,
            // Stream-ordered memory belongs to no context (measured on an H100).
            CONTEXT => 0,
            BUFFER_ID => self.id(),
            RANGE_START_ADDR => self.block.address,
            RANGE_SIZE => self.block.requested,
            // The pages have descriptors, which are for our own tokens.
            ALLOWED_HANDLE_TYPES => 0,
            MEMPOOL_HANDLE if self.block.for_all => 0,
            MEMPOOL_HANDLE => self.entry.handle(),
            _ => return,
        };
        // SAFETY: each of these attributes is 64 bits wide, at an address that the driver could write.
        unsafe { value.cast::<u64>().write_unaligned(right) };
    }
}

/// Asks the driver of an address in a segment whose memory comes and goes: of a page that has some. `amend` corrects the
/// answer.
fn ask_segment(
    segment: &Found,
    driver: impl FnOnce(DevicePtr) -> CUresult,
    amend: impl FnOnce(),
) -> CUresult {
    let result = driver(segment.backed.unwrap_or(NOWHERE));
    if result == SUCCESS {
        amend();
    }
    result
}

/// Corrects the driver's answer for an address in a segment.
///
/// # Safety
/// `value` is null or what the driver just wrote for this attribute.
unsafe fn amend_segment(
    (segment, context): &(Found, Context),
    address: DevicePtr,
    attribute: c_int,
    value: *mut c_void,
) {
    if value.is_null() {
        return;
    }
    let right = match attribute {
        IS_LEGACY_CUDA_IPC_CAPABLE | MEMORY_TYPE => {
            // A page may be in the host's memory for a while.
            let right = if attribute == MEMORY_TYPE {
                OF_DEVICE
            } else {
                0
            };
            // SAFETY: these attributes are ints.
            return unsafe { value.cast::<c_int>().write_unaligned(right) };
        }
        CONTEXT => context.0,
        DEVICE_POINTER => address,
        BUFFER_ID => OURS | 1 << (PLACE + SERIAL) | segment.number,
        RANGE_START_ADDR => segment.base,
        RANGE_SIZE => segment.bytes,
        ALLOWED_HANDLE_TYPES | MEMPOOL_HANDLE => 0,
        _ => return,
    };
    // SAFETY: each of these attributes is 64 bits wide, at an address that the driver could write.
    unsafe { value.cast::<u64>().write_unaligned(right) };
}

/// Asks the driver of an address: of none if it is in a pool, but in no block. `amend` corrects the answer for a live
/// block.
fn ask(
    address: DevicePtr,
    driver: impl FnOnce(DevicePtr) -> CUresult,
    amend: impl FnOnce(PoolBlock),
) -> CUresult {
    let Some(entry) = registry::owner(address) else {
        return driver(address);
    };
    let Some(found) = found(entry, address) else {
        return driver(NOWHERE);
    };
    let result = driver(address);
    if result == SUCCESS {
        amend(found);
    }
    result
}

/// Whether an attribute tells where the allocation around an address begins or ends. No other depends on which part of
/// a driver allocation a block of `cudaMalloc`'s pool is, so only these pay for the look-up.
fn is_range(attribute: c_int) -> bool {
    matches!(attribute, RANGE_START_ADDR | RANGE_SIZE)
}

/// As [`ask`], of the range around an address that may be in `cudaMalloc`'s pool.
fn ask_range(
    address: DevicePtr,
    driver: impl FnOnce(DevicePtr) -> CUresult,
    amend: impl FnOnce(DevicePtr, u64),
) -> CUresult {
    if let Some((base, bytes)) = ipc_import::find(address) {
        let result = driver(address);
        if result == SUCCESS {
            amend(base, bytes);
        }
        return result;
    }
    match registry::used().map(|pool| pool.look_up(address)) {
        None | Some(device_pool::Found::Unknown) => driver(address),
        Some(device_pool::Found::Free) => driver(NOWHERE),
        Some(device_pool::Found::Live(base, bytes)) => {
            let result = driver(address);
            if result == SUCCESS {
                amend(base, bytes);
            }
            result
        }
    }
}

/// Corrects a range that the driver wrote.
///
/// # Safety
/// `value` is null or what the driver just wrote for this attribute.
unsafe fn amend_range(attribute: c_int, value: *mut c_void, base: DevicePtr, bytes: u64) {
    let right = match attribute {
        RANGE_START_ADDR => base,
        RANGE_SIZE => bytes,
        _ => return,
    };
    if !value.is_null() {
        // SAFETY: both attributes are 64 bits wide, at an address that the driver could write.
        unsafe { value.cast::<u64>().write_unaligned(right) };
    }
}

/// Makes copies of a block of `cudaMalloc` wait for the device. Memory in pages cannot have this attribute (the driver's
/// answer is `CUDA_ERROR_NOT_SUPPORTED`), so that its context gets it, for all of its blocks, and keeps it. `None`: the
/// driver must answer.
fn set_sync_memops(value: *const c_uint, address: DevicePtr) -> Option<CUresult> {
    let found = block(address).filter(|found| found.block.for_all)?;
    // SAFETY: null, or the caller's value of this attribute, which is an int.
    let is_on = unsafe { value.as_ref() }? != &0;
    let set = || context::set_sync_memops(found.block.context).ok();
    let done = if is_on { set() } else { Some(()) };
    done.map(|()| SUCCESS)
}

driver_hooks! {
    /// One attribute of an address.
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: DevicePtr) {
        let driver = |address| {
            // SAFETY: the caller's arguments, but for the address; so in every hook of this file.
            unsafe { real::cuPointerGetAttribute(value, attribute, address) }
        };
        if let Some(segment) = elastic::find(address) {
            if attribute == P2P_TOKENS {
                external::exported(Class::External, address);
            }
            return ask_segment(&segment.0, driver, || {
                // SAFETY: the driver wrote the value.
                unsafe { amend_segment(&segment, address, attribute, value) };
            });
        }
        if is_range(attribute) && registry::owner(address).is_none() {
            return ask_range(address, driver, |base, bytes| {
                // SAFETY: the driver wrote the value.
                unsafe { amend_range(attribute, value, base, bytes) };
            });
        }
        // SAFETY: the driver wrote the value.
        let result = ask(address, driver, |found| unsafe { found.amend(attribute, value) });
        if result == SUCCESS && attribute == P2P_TOKENS {
            external::exported(Class::External, address);
        }
        result
    }
    /// Several attributes of an address.
    fn cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_int, values: *mut *mut c_void, address: DevicePtr,
    ) {
        let driver = |address| {
            // SAFETY: as above.
            unsafe { real::cuPointerGetAttributes(count, attributes, values, address) }
        };
        if let Some(segment) = elastic::find(address) {
            return ask_segment(&segment.0, driver, || {
                for at in 0..count as usize {
                    // SAFETY: the driver read as many of each and wrote the values.
                    unsafe { amend_segment(&segment, address, *attributes.add(at), *values.add(at)) };
                }
            });
        }
        // SAFETY: the caller passes as many attributes, which are not read where there are none.
        let has_range = !attributes.is_null()
            && (0..count as usize).any(|at| is_range(unsafe { *attributes.add(at) }));
        if has_range && registry::owner(address).is_none() {
            return ask_range(address, driver, |base, bytes| {
                for at in 0..count as usize {
                    // SAFETY: the driver read as many of each and wrote the values.
                    unsafe { amend_range(*attributes.add(at), *values.add(at), base, bytes) };
                }
            });
        }
        ask(address, driver, |found| {
            for at in 0..count as usize {
                // SAFETY: the driver read as many of each and wrote the values.
                unsafe { found.amend(*attributes.add(at), *values.add(at)) };
            }
        })
    }
    /// An attribute such as SYNC_MEMOPS stays with the memory: the next owner must not inherit it.
    fn cuPointerSetAttribute(value: *const c_void, attribute: c_int, address: DevicePtr) {
        if attribute == SYNC_MEMOPS
            && let Some(result) = set_sync_memops(value.cast(), address)
        {
            return result;
        }
        // SAFETY: as above.
        let result = unsafe { real::cuPointerSetAttribute(value, attribute, address) };
        if result == SUCCESS {
            external::exported(Class::Device, address);
        }
        result
    }
}
