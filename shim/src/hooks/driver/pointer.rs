//! The attributes of an address: for memory of this library, the answers that the driver would give
//! for its own.

use std::ffi::{c_int, c_uint, c_void};

use gpushim_alloc::Context;
use gpushim_trace::Class;

use crate::cuda::functions::real;
use crate::cuda::types::{CUresult, DevicePtr, INVALID_VALUE, NOWHERE, SUCCESS};
use crate::cuda::{context, device};
use crate::hooks::driver::external;
use crate::hooks::driver::hook::driver_hooks;
use crate::memory::owner::{self, Owner};
use crate::memory::physical::{self, DESCRIPTOR};
use crate::memory::{elastic, ipc_export, mappings};

/// The driver's `CU_POINTER_ATTRIBUTE_…`, by number.
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const DEVICE_POINTER: c_int = 3;
/// Tokens for another driver, which is about to reach the memory.
const P2P_TOKENS: c_int = 5;
const HOST_POINTER: c_int = 4;
const SYNC_MEMOPS: c_int = 6;
const BUFFER_ID: c_int = 7;
const IS_LEGACY_CUDA_IPC_CAPABLE: c_int = 10;
const RANGE_START_ADDR: c_int = 11;
const RANGE_SIZE: c_int = 12;
const ALLOWED_HANDLE_TYPES: c_int = 14;
const IS_GPU_DIRECT_RDMA_CAPABLE: c_int = 15;
const MEMPOOL_HANDLE: c_int = 17;
const MAPPING_SIZE: c_int = 18;
const MAPPING_BASE_ADDR: c_int = 19;

/// The driver's `CU_MEMORYTYPE_DEVICE`.
const OF_DEVICE: c_int = 2;

/// Bytes of whose multiples the driver's own allocations consist.
const PAGE: u64 = 2 << 20;

/// Bits of a block's address in its id, and bits of its serial number above them. The highest bit
/// keeps these ids apart from the driver's, which count from 1.
const OURS: u64 = 1 << 63;
const PLACE: u32 = 38;
const SERIAL: u32 = 24;

/// The value of an attribute, by the type that the driver writes.
enum Value {
    Int(c_int),
    Wide(u64),
}

/// Returns a number that no other allocation has while this one lives, and that no recent one at
/// this address had.
fn id(owner: &Owner) -> Option<u64> {
    match owner {
        Owner::Pool(_, block) => {
            let serial = u64::from(block.serial) & ((1 << SERIAL) - 1);
            Some(OURS | serial << PLACE | (block.address >> 9) & ((1 << PLACE) - 1))
        }
        Owner::Segment(segment, _) => Some(OURS | 1 << (PLACE + SERIAL) | segment.number),
        _ => None,
    }
}

/// True if other processes can be given memory of a segment in a context.
fn is_shareable(context: Context) -> bool {
    let device = device::driver().ordinal_of(context);
    device.is_ok_and(physical::is_shareable)
}

/// Returns the driver's answer for its own memory, if it would give another one here.
fn right(owner: &Owner, attribute: c_int, address: DevicePtr) -> Option<Value> {
    // Stream-ordered memory belongs to no context, and no network card reaches it (measured on an
    // H100).
    let is_ordered = matches!(owner, Owner::Pool(_, block) if !block.for_all);
    let (base, bytes) = owner.range()?;
    match (attribute, owner) {
        (RANGE_START_ADDR, _) => return Some(Value::Wide(base)),
        (RANGE_SIZE, _) => return Some(Value::Wide(bytes)),
        // The driver knows its own allocation around the block, and answers all else.
        (_, Owner::Whole(..)) => return None,
        _ => {}
    }
    let first = base / PAGE * PAGE;
    Some(match attribute {
        IS_LEGACY_CUDA_IPC_CAPABLE => Value::Int(match owner {
            Owner::Pool(pool, block) => ipc_export::is_possible(pool, block).into(),
            Owner::Segment(_, context) => is_shareable(*context).into(),
            _ => 0,
        }),
        SYNC_MEMOPS => Value::Int(owner.context().is_some_and(context::has_sync_memops).into()),
        // A page of a segment may be in the host's memory for a while.
        MEMORY_TYPE => Value::Int(OF_DEVICE),
        IS_GPU_DIRECT_RDMA_CAPABLE if is_ordered => Value::Int(0),
        IS_GPU_DIRECT_RDMA_CAPABLE if matches!(owner, Owner::Import(_)) => Value::Int(0),
        CONTEXT if is_ordered => Value::Wide(0),
        CONTEXT => Value::Wide(owner.context()?.0),
        DEVICE_POINTER => Value::Wide(address),
        BUFFER_ID => Value::Wide(id(owner)?),
        // The pages have descriptors, but only for this library's tokens.
        ALLOWED_HANDLE_TYPES => Value::Wide(0),
        MEMPOOL_HANDLE => Value::Wide(match owner {
            Owner::Pool(pool, _) if is_ordered => pool.handle(),
            _ => 0,
        }),
        MAPPING_BASE_ADDR => Value::Wide(first),
        MAPPING_SIZE => Value::Wide((base + bytes).next_multiple_of(PAGE) - first),
        _ => return None,
    })
}

/// Corrects the driver's answer for an address.
///
/// # Safety
/// `value` is null, or where the driver just wrote this attribute.
unsafe fn amend(owner: &Owner, attribute: c_int, address: DevicePtr, value: *mut c_void) {
    if value.is_null() {
        return;
    }
    let right = match owner {
        Owner::Driver if attribute != ALLOWED_HANDLE_TYPES => None,
        Owner::Driver => mappings::is_plain_at(address).then(|| {
            // SAFETY: the driver wrote 64 bits there.
            let with_descriptors = unsafe { value.cast::<u64>().read_unaligned() };
            Value::Wide(with_descriptors & !u64::from(DESCRIPTOR))
        }),
        // The driver's answer for an address without memory is the address itself.
        Owner::Nobody if attribute == HOST_POINTER => Some(Value::Wide(address)),
        _ => right(owner, attribute, address),
    };
    match right {
        // SAFETY: the attribute is an int, at an address that the driver could write.
        Some(Value::Int(right)) => unsafe { value.cast::<c_int>().write_unaligned(right) },
        // SAFETY: the attribute is 64 bits wide, at an address that the driver could write.
        Some(Value::Wide(right)) => unsafe { value.cast::<u64>().write_unaligned(right) },
        None => {}
    }
}

/// Asks the driver about an address of the same kind that it knows. For a segment, it is a page
/// with memory. For an address where the program has nothing, it is one without memory.
pub(super) fn ask(
    owner: &Owner,
    address: DevicePtr,
    driver: impl FnOnce(DevicePtr) -> CUresult,
) -> CUresult {
    driver(match owner {
        Owner::Segment(segment, _) => segment.backed.unwrap_or(NOWHERE),
        Owner::Nobody => NOWHERE,
        _ => address,
    })
}

/// Makes copies of memory of this library wait for the device. The driver cannot do it for memory
/// in pages (`CUDA_ERROR_NOT_SUPPORTED`), so the context does it for all copies, until it ends.
/// `None`: the driver is too old, and must answer.
fn set_sync_memops(owner: &Owner, value: *const c_uint) -> Option<CUresult> {
    // SAFETY: null, or the caller's value of this attribute, which is an int.
    let is_on = unsafe { value.as_ref() }? != &0;
    let set = || context::set_sync_memops(owner.context()?).ok();
    let done = if is_on { set() } else { Some(()) };
    done.map(|()| SUCCESS)
}

driver_hooks! {
    /// Returns one attribute of an address.
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: DevicePtr) {
        let owner = owner::of(address);
        if attribute == P2P_TOKENS {
            // Before the call: all of a segment must have memory.
            elastic::pin(address);
        }
        let result = ask(&owner, address, |address| {
            // SAFETY: the caller's arguments, but for the address; so in every hook of this file.
            unsafe { real::cuPointerGetAttribute(value, attribute, address) }
        });
        if result == SUCCESS {
            // SAFETY: the driver wrote the value.
            unsafe { amend(&owner, attribute, address, value) };
            if attribute == P2P_TOKENS {
                external::exported(Class::External, address);
            }
        }
        result
    }
    /// Returns several attributes of an address.
    fn cuPointerGetAttributes(
        count: c_uint, attributes: *mut c_int, values: *mut *mut c_void, address: DevicePtr,
    ) {
        let owner = owner::of(address);
        let result = ask(&owner, address, |address| {
            // SAFETY: as above.
            unsafe { real::cuPointerGetAttributes(count, attributes, values, address) }
        });
        if result == SUCCESS {
            for at in 0..count as usize {
                // SAFETY: the driver read as many of each and wrote the values.
                unsafe { amend(&owner, *attributes.add(at), address, *values.add(at)) };
            }
        }
        result
    }
    /// Sets an attribute of an address. It stays with the memory (SYNC_MEMOPS, for one): the next
    /// owner must not inherit it.
    fn cuPointerSetAttribute(value: *const c_void, attribute: c_int, address: DevicePtr) {
        let owner = owner::of(address);
        match owner {
            Owner::Nobody => return INVALID_VALUE,
            Owner::Driver | Owner::Whole(..) => {}
            _ if attribute != SYNC_MEMOPS => return INVALID_VALUE,
            _ => {
                // A network card is about to reach the memory: all of a segment must stay.
                elastic::pin(address);
                if let Some(result) = set_sync_memops(&owner, value.cast()) {
                    return result;
                }
            }
        }
        // SAFETY: as above.
        let result = unsafe { real::cuPointerSetAttribute(value, attribute, address) };
        if result == SUCCESS {
            external::exported(Class::Device, address);
        }
        result
    }
}
