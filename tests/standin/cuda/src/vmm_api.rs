//! The driver's functions for virtual memory management.

use crate::abi::{In, MemLocation, Out};
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED};
use crate::memory::{Kind, PAGE};
use crate::physical::MemProp;
use crate::state::lock;
use crate::vmm;

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAccess {
    /// The device or host that gets access.
    pub location: MemLocation,
    /// What: 0 nothing, 1 read, 3 read and write.
    pub flags: u32,
}

api! {
    /// Sizes and addresses are multiples of this.
    cuMemGetAllocationGranularity 10020 => fn cuMemGetAllocationGranularity(granularity: Out<usize>, prop: In<MemProp>, option: u32) {
        lock()?;
        prop.get()?;
        // Minimum and recommended are the same.
        if option > 1 {
            return Err(INVALID_VALUE);
        }
        granularity.put(PAGE as usize)
    }
    /// Reserves addresses.
    cuMemAddressReserve 10020 => fn cuMemAddressReserve(address: Out<u64>, size: usize, alignment: usize, wished: u64, flags: u64) {
        address.required()?;
        address.put(vmm::reserve(size as u64, alignment as u64, wished, flags)?)
    }
    /// Gives them back.
    cuMemAddressFree 10020 => fn cuMemAddressFree(address: u64, size: usize) {
        vmm::unreserve(address, size as u64)
    }
    /// Makes physical memory.
    cuMemCreate 10020 => fn cuMemCreate(handle: Out<u64>, size: usize, prop: In<MemProp>, flags: u64) {
        lock()?;
        handle.required()?;
        handle.put(vmm::create(size as u64, prop.get()?, flags)?)
    }
    /// Gives a handle back.
    cuMemRelease 10020 => fn cuMemRelease(handle: u64) {
        vmm::release(handle)
    }
    /// Puts memory at addresses.
    cuMemMap 10020 => fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) {
        vmm::map(address, size as u64, offset as u64, handle, flags)
    }
    /// Takes it away again.
    cuMemUnmap 10020 => fn cuMemUnmap(address: u64, size: usize) {
        vmm::unmap(address, size as u64)
    }
    /// Sets which devices may use it.
    cuMemSetAccess 10020 => fn cuMemSetAccess(address: u64, size: usize, access: In<MemAccess>, count: usize) {
        lock()?;
        let wanted: Vec<_> = access.list(count)?.iter().map(|one| (one.location.kind, one.location.id, one.flags)).collect();
        vmm::set_access(address, size as u64, &wanted)
    }
    /// Reports the access of a device.
    cuMemGetAccess 10020 => fn cuMemGetAccess(flags: Out<u64>, location: In<MemLocation>, address: u64) {
        lock()?;
        flags.required()?;
        let location = location.get()?;
        flags.put(vmm::access(location.kind, location.id, address)?)
    }
    /// The properties that a handle's memory was made with.
    cuMemGetAllocationPropertiesFromHandle 10020 => fn cuMemGetAllocationPropertiesFromHandle(prop: Out<MemProp>, handle: u64) {
        let state = lock()?;
        prop.put(state.vmm.prop(handle)?)
    }
    /// The handle of what is mapped at an address.
    cuMemRetainAllocationHandle 11000 => fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) {
        handle.required()?;
        handle.put(vmm::retain(address)?)
    }
    /// A handle for another process.
    cuMemExportToShareableHandle 10020 => fn cuMemExportToShareableHandle(shared: Out<i32>, handle: u64, kind: u32, flags: u64) {
        shared.required()?;
        shared.put(vmm::export(handle, kind, flags)?)
    }
    /// A handle from another process: a descriptor passed by value.
    cuMemImportFromShareableHandle 10020 => fn cuMemImportFromShareableHandle(handle: Out<u64>, shared: u64, kind: u32) {
        handle.required()?;
        handle.put(vmm::import(shared as i32, kind)?)
    }
    /// A DMA-BUF of memory: there is no device to share it with.
    cuMemGetHandleForAddressRange 11070 => fn cuMemGetHandleForAddressRange(handle: Out<i32>, address: u64, size: usize, _kind: u32, _flags: u64) {
        handle.required()?;
        let state = lock()?;
        let end = address.checked_add(size as u64).ok_or(INVALID_VALUE)?;
        let mut at = address;
        while at < end {
            let (base, found) = state.memory.find(at).ok_or(INVALID_VALUE)?;
            let is_whole = base + found.size >= end;
            // A range may lie in several mappings, one behind the other.
            if !is_whole && found.kind != Kind::Mapped {
                return Err(INVALID_VALUE);
            }
            at = base + found.size;
        }
        Err(NOT_SUPPORTED)
    }
}
