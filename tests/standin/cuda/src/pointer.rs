//! Attributes of addresses: `cuPointerGetAttribute` and related functions.

use std::collections::HashSet;

use crate::abi::{In, Out};
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::memory::{Allocation, Kind, PAGE, round};
use crate::state::{State, lock};

/// Numbers of `CUpointer_attribute`.
mod attribute {
    pub const CONTEXT: u32 = 1;
    pub const MEMORY_TYPE: u32 = 2;
    pub const DEVICE_POINTER: u32 = 3;
    pub const HOST_POINTER: u32 = 4;
    pub const SYNC_MEMOPS: u32 = 6;
    pub const BUFFER_ID: u32 = 7;
    pub const IS_MANAGED: u32 = 8;
    pub const DEVICE_ORDINAL: u32 = 9;
    pub const IS_LEGACY_IPC_CAPABLE: u32 = 10;
    pub const RANGE_START: u32 = 11;
    pub const RANGE_SIZE: u32 = 12;
    pub const MAPPED: u32 = 13;
    pub const ALLOWED_HANDLE_TYPES: u32 = 14;
    pub const IS_RDMA_CAPABLE: u32 = 15;
    pub const ACCESS_FLAGS: u32 = 16;
    pub const MEMPOOL: u32 = 17;
    pub const MAPPING_SIZE: u32 = 18;
    pub const MAPPING_BASE: u32 = 19;
    pub const MEMORY_BLOCK_ID: u32 = 20;
}

/// Memory types `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const TYPE_HOST: u64 = 1;
const TYPE_DEVICE: u64 = 2;
/// Device ordinal in `cuPointerGetAttributes` for an address that the driver does not know.
const NO_DEVICE: u64 = -2i64 as u64;

/// Allocations whose synchronous copies always synchronise, by their number.
#[derive(Debug, Default)]
pub struct SyncMemops(HashSet<u64>);

/// Returns the bytes of an attribute's value: 4 for booleans as well (recorded.txt).
fn width(number: u32) -> Outcome<usize> {
    use attribute::*;
    Ok(match number {
        SYNC_MEMOPS
        | IS_MANAGED
        | IS_LEGACY_IPC_CAPABLE
        | MAPPED
        | IS_RDMA_CAPABLE
        | MEMORY_TYPE
        | DEVICE_ORDINAL
        | ACCESS_FLAGS => 4,
        CONTEXT | DEVICE_POINTER | HOST_POINTER | BUFFER_ID | RANGE_START | RANGE_SIZE
        | ALLOWED_HANDLE_TYPES | MEMPOOL | MAPPING_SIZE | MAPPING_BASE | MEMORY_BLOCK_ID => 8,
        _ => return Err(INVALID_VALUE),
    })
}

fn put(to: Out<u8>, number: u32, value: u64) -> Outcome {
    to.required()?;
    let bytes = value.to_ne_bytes();
    for (index, byte) in bytes.iter().take(width(number)?).enumerate() {
        to.put_at(index, *byte);
    }
    Ok(())
}

/// Returns the allocation at an address, if it is usable now.
fn find(state: &mut State, address: u64) -> Outcome<(u64, Allocation)> {
    let (base, found) = state.memory.find(address).ok_or(INVALID_VALUE)?;
    let (base, found) = (base, found.clone());
    match found.kind {
        Kind::Array => Err(INVALID_VALUE),
        // An address that a graph will allocate is unknown until then.
        Kind::Graph if !crate::graph_memory::is_live(state, base) => Err(INVALID_VALUE),
        _ => Ok((base, found)),
    }
}

/// Returns the access of the device to an allocation. A mapping without `cuMemSetAccess` has none.
fn access(state: &State, base: u64, found: &Allocation) -> u64 {
    let both = 3;
    match (found.kind, state.vmm.mapping(base)) {
        (Kind::Mapped, Some((_, mapping))) => {
            let device = (crate::vmm::DEVICE, found.device);
            u64::from(mapping.access.get(&device).copied().unwrap_or(0))
        }
        _ => both,
    }
}

/// Returns the unit of memory that holds an allocation in the driver, as base and size.
fn mapping(state: &State, base: u64, found: &Allocation) -> (u64, u64) {
    match found.kind {
        Kind::Mapped | Kind::Registered => (base, found.size),
        Kind::Pool => state.mempools.chunk(base).unwrap_or((base, found.spacing)),
        Kind::Host => (base, round(found.size)),
        _ if found.spacing < PAGE => (base / PAGE * PAGE, PAGE),
        _ => (base, found.spacing),
    }
}

fn value(state: &mut State, number: u32, address: u64) -> Outcome<u64> {
    use attribute::*;
    width(number)?;
    let (base, found) = find(state, address)?;
    let is_host = matches!(found.kind, Kind::Host | Kind::Registered);
    let is_managed = found.kind == Kind::Managed;
    Ok(match number {
        // Pools, mappings and graphs' memory belong to a device, not to a context.
        CONTEXT => match found.kind {
            Kind::Pool | Kind::Mapped | Kind::Graph => 0,
            _ => found.context,
        },
        MEMORY_TYPE if is_host => TYPE_HOST,
        MEMORY_TYPE => TYPE_DEVICE,
        DEVICE_POINTER if access(state, base, &found) == 0 => return Err(INVALID_VALUE),
        DEVICE_POINTER => address,
        HOST_POINTER if is_host || is_managed => address,
        HOST_POINTER => return Err(INVALID_VALUE),
        SYNC_MEMOPS => u64::from(is_managed || state.sync_memops.0.contains(&found.id)),
        BUFFER_ID => found.id,
        IS_MANAGED => u64::from(is_managed),
        DEVICE_ORDINAL => found.device as u64,
        IS_RDMA_CAPABLE if found.kind == Kind::Mapped => u64::from(state.vmm.is_rdma_capable(base)),
        IS_LEGACY_IPC_CAPABLE | IS_RDMA_CAPABLE => u64::from(found.kind == Kind::Device),
        RANGE_START | RANGE_SIZE => {
            let range = state
                .vmm
                .reservation(base)
                .filter(|_| found.kind == Kind::Mapped);
            let (start, size) = range.unwrap_or((base, found.size));
            if number == RANGE_START { start } else { size }
        }
        MAPPED => 1,
        ALLOWED_HANDLE_TYPES => match state.vmm.mapping(base) {
            Some((_, mapping)) => state
                .vmm
                .prop(mapping.handle)
                .map_or(0, |prop| u64::from(prop.handles)),
            None => 0,
        },
        ACCESS_FLAGS => access(state, base, &found),
        MEMPOOL => state.mempools.owner(base).unwrap_or(0),
        MAPPING_SIZE => mapping(state, base, &found).1,
        MAPPING_BASE => mapping(state, base, &found).0,
        _ => mapping(state, base, &found).0 / PAGE,
    })
}

api! {
    /// Returns one attribute of an address.
    cuPointerGetAttribute 4000 => fn cuPointerGetAttribute(data: Out<u8>, number: u32, address: u64) {
        let mut state = lock()?;
        data.required()?;
        let value = value(&mut state, number, address)?;
        put(data, number, value)
    }
    /// Returns several attributes of an address; 0 for an attribute that it does not have.
    cuPointerGetAttributes 7000 => fn cuPointerGetAttributes(count: u32, numbers: In<u32>, data: In<Out<u8>>, address: u64) {
        let mut state = lock()?;
        if count == 0 {
            return Err(INVALID_VALUE);
        }
        let is_known = find(&mut state, address).is_ok();
        for index in 0..count as usize {
            let number = numbers.at(index)?;
            width(number)?;
            let value = match value(&mut state, number, address) {
                Ok(value) => value,
                Err(_) if !is_known && number == attribute::DEVICE_ORDINAL => NO_DEVICE,
                Err(_) if !is_known && number == attribute::HOST_POINTER => address,
                Err(_) => 0,
            };
            put(data.at(index)?, number, value)?;
        }
        Ok(())
    }
    /// Sets if synchronous copies of an allocation always synchronise. No other attribute can be
    /// set.
    cuPointerSetAttribute 6000 => fn cuPointerSetAttribute(value: In<u32>, number: u32, address: u64) {
        let mut state = lock()?;
        if number != attribute::SYNC_MEMOPS {
            return Err(INVALID_VALUE);
        }
        let is_on = value.get()? != 0;
        let (_, found) = find(&mut state, address)?;
        // Drivers of CUDA 12 and 13 return this, by reports of users of libfabric and UCX.
        if found.kind == Kind::Mapped {
            return Err(NOT_SUPPORTED);
        }
        match is_on {
            true => state.sync_memops.0.insert(found.id),
            false => state.sync_memops.0.remove(&found.id),
        };
        Ok(())
    }
}
