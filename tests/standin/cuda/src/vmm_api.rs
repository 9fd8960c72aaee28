//! Driver functions for virtual memory management.

use crate::abi::{In, MemLocation, Out};
use crate::codes::INVALID_VALUE;
use crate::env::settings;
use crate::memory::{Kind, PAGE};
use crate::physical::{MemProp, sparse_file};
use crate::state::lock;
use crate::vmm;
use std::os::fd::IntoRawFd;

/// Size of the pages of a DMA-BUF, in bytes.
const HOST_PAGE: u64 = 4096;

/// Access of a location (`CUmemAccessDesc`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemAccess {
    /// Device or host that gets access.
    pub location: MemLocation,
    /// Access: 0 none, 1 read, 3 read and write.
    pub flags: u32,
}

api! {
    /// Returns the bytes of which sizes and addresses must be multiples.
    cuMemGetAllocationGranularity 10020 => fn cuMemGetAllocationGranularity(granularity: Out<usize>, prop: In<MemProp>, option: u32) {
        lock()?;
        prop.get()?;
        // Minimum and recommended are the same.
        if option > 1 {
            return Err(INVALID_VALUE);
        }
        granularity.put(PAGE as usize)
    }
    cuMemAddressReserve 10020 => fn cuMemAddressReserve(address: Out<u64>, size: usize, alignment: usize, wished: u64, flags: u64) {
        address.required()?;
        address.put(vmm::reserve(size as u64, alignment as u64, wished, flags)?)
    }
    /// Frees a reservation of addresses.
    cuMemAddressFree 10020 => fn cuMemAddressFree(address: u64, size: usize) {
        vmm::unreserve(address, size as u64)
    }
    cuMemCreate 10020 => fn cuMemCreate(handle: Out<u64>, size: usize, prop: In<MemProp>, flags: u64) {
        settings().latency.spend("create");
        lock()?;
        handle.required()?;
        handle.put(vmm::create(size as u64, prop.get()?, flags)?)
    }
    /// Releases a handle once. The memory stays while it is mapped.
    cuMemRelease 10020 => fn cuMemRelease(handle: u64) {
        vmm::release(handle)
    }
    /// Maps memory of a handle at reserved addresses.
    cuMemMap 10020 => fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) {
        vmm::map(address, size as u64, offset as u64, handle, flags)
    }
    /// Unmaps memory from addresses.
    cuMemUnmap 10020 => fn cuMemUnmap(address: u64, size: usize) {
        vmm::unmap(address, size as u64)
    }
    /// Sets the access of locations to mapped memory.
    cuMemSetAccess 10020 => fn cuMemSetAccess(address: u64, size: usize, access: In<MemAccess>, count: usize) {
        lock()?;
        let wanted: Vec<_> = access.list(count)?.iter().map(|one| (one.location.kind, one.location.id, one.flags)).collect();
        vmm::set_access(address, size as u64, &wanted)
    }
    /// Returns the access of a location to the memory at an address.
    cuMemGetAccess 10020 => fn cuMemGetAccess(flags: Out<u64>, location: In<MemLocation>, address: u64) {
        lock()?;
        flags.required()?;
        let location = location.get()?;
        flags.put(vmm::access(location.kind, location.id, address)?)
    }
    /// Returns the properties that the memory of a handle was made with.
    cuMemGetAllocationPropertiesFromHandle 10020 => fn cuMemGetAllocationPropertiesFromHandle(prop: Out<MemProp>, handle: u64) {
        let state = lock()?;
        prop.put(state.vmm.prop(handle)?)
    }
    /// Returns the handle of the memory mapped at an address.
    cuMemRetainAllocationHandle 11000 => fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) {
        handle.required()?;
        handle.put(vmm::retain(address)?)
    }
    /// Returns a descriptor of a handle's memory for a peer process.
    cuMemExportToShareableHandle 10020 => fn cuMemExportToShareableHandle(shared: Out<i32>, handle: u64, kind: u32, flags: u64) {
        shared.required()?;
        shared.put(vmm::export(handle, kind, flags)?)
    }
    /// Returns a handle of memory from a peer process. `shared` is a file descriptor passed by
    /// value.
    cuMemImportFromShareableHandle 10020 => fn cuMemImportFromShareableHandle(handle: Out<u64>, shared: u64, kind: u32) {
        handle.required()?;
        handle.put(vmm::import(shared as i32, kind)?)
    }
    /// Returns a DMA-BUF of whole host pages of memory: a descriptor of an empty file.
    cuMemGetHandleForAddressRange 11070 => fn cuMemGetHandleForAddressRange(handle: Out<i32>, address: u64, size: usize, _kind: u32, _flags: u64) {
        handle.required()?;
        let state = lock()?;
        let is_whole = address.is_multiple_of(HOST_PAGE) && (size as u64).is_multiple_of(HOST_PAGE);
        if size == 0 || !is_whole {
            return Err(INVALID_VALUE);
        }
        // Adjacent mappings count as one.
        let (mut at, end) = (address, address + size as u64);
        while at < end {
            let (base, found) = state.memory.find(at).ok_or(INVALID_VALUE)?;
            let beyond = base + found.size;
            match found.kind {
                Kind::Mapped => at = beyond,
                Kind::Device if end <= beyond => at = end,
                _ => return Err(INVALID_VALUE),
            }
        }
        handle.put(sparse_file(0)?.into_raw_fd())
    }
}
