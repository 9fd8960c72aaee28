//! Virtual memory management: reserved addresses, handles of physical memory, and mappings.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::codes::{INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome};
use crate::handles::Handles;
use crate::memory::{Allocation, Kind, PAGE};
use crate::physical::{MemProp, Store, map_file, unmap_file};
use crate::state::{State, lock};

pub use crate::vmm_api::PROCS;

/// Values of `CUmemLocationType`.
pub const DEVICE: u32 = 1;
const HOST: u32 = 2;
const HOST_NUMA: u32 = 3;

/// A handle of physical memory.
pub struct Handle {
    physical: u64,
    /// Number of times that it was given out.
    count: u32,
}

/// Mapping of physical memory at an address.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Size of the mapping in bytes.
    pub size: u64,
    /// Handle that it was mapped with.
    pub handle: u64,
    physical: u64,
    /// Access of each location: 0 none, 1 read, 3 read and write.
    pub access: BTreeMap<(u32, i32), u32>,
}

/// State of virtual memory management.
pub struct Vmm {
    reservations: BTreeMap<u64, u64>,
    handles: Handles<Handle>,
    mappings: BTreeMap<u64, Mapping>,
    /// Physical memory behind the handles.
    pub store: Store,
}

impl Default for Vmm {
    fn default() -> Self {
        Vmm {
            reservations: BTreeMap::new(),
            handles: Handles::new(0x5a),
            mappings: BTreeMap::new(),
            store: Store::default(),
        }
    }
}

impl Vmm {
    /// Returns the reservation that holds an address, as base and size.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (base, size) = self.reservations.range(..=address).next_back()?;
        (address < base + size).then_some((*base, *size))
    }

    /// Returns the mapping that holds an address, with its base.
    pub fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (base, mapping) = self.mappings.range(..=address).next_back()?;
        (address < base + mapping.size).then_some((*base, mapping))
    }

    /// True if network cards may reach the memory mapped at an address.
    pub fn is_rdma_capable(&self, address: u64) -> bool {
        let physical = self.mapping(address).map(|(_, mapping)| mapping.physical);
        let physical = physical.and_then(|physical| self.store.get(physical));
        physical.is_some_and(|physical| physical.prop.rdma != 0)
    }

    /// Returns the properties that the memory of a handle was made with.
    pub fn prop(&self, handle: u64) -> Outcome<MemProp> {
        let handle = self.handles.get(handle).map_err(|_| INVALID_VALUE)?;
        self.store
            .get(handle.physical)
            .map(|physical| physical.prop)
            .ok_or(INVALID_VALUE)
    }

    /// Returns the bases of the mappings within a range; none if a mapping extends beyond the
    /// range.
    fn whole(&self, range: &Range<u64>) -> Option<Vec<u64>> {
        if let Some((base, mapping)) = self.mapping(range.start)
            && (base < range.start || base + mapping.size > range.end)
        {
            return None;
        }
        let within: Vec<u64> = self
            .mappings
            .range(range.clone())
            .map(|(base, _)| *base)
            .collect();
        let ends_inside = |base: &u64| {
            self.mappings
                .get(base)
                .is_some_and(|mapping| base + mapping.size <= range.end)
        };
        within.iter().all(ends_inside).then_some(within)
    }
}

fn is_page_multiple(value: u64) -> bool {
    value.is_multiple_of(PAGE)
}

/// Reserves addresses, at the wished place if it is free.
pub fn reserve(size: u64, alignment: u64, wished: u64, flags: u64) -> Outcome<u64> {
    let mut state = lock()?;
    if size == 0
        || !is_page_multiple(size)
        || flags != 0
        || (alignment != 0 && !alignment.is_power_of_two())
    {
        return Err(INVALID_VALUE);
    }
    // An address space cannot hold more.
    if size > 1 << 46 {
        return Err(OUT_OF_MEMORY);
    }
    let base = match wished != 0 && state.memory.reserve_at(wished, size) {
        true => wished,
        false => state.memory.reserve_apart(size, alignment)?,
    };
    state.vmm.reservations.insert(base, size);
    Ok(base)
}

/// Frees a whole reservation. Fails while anything is mapped in it.
pub fn unreserve(base: u64, size: u64) -> Outcome {
    let mut state = lock()?;
    if state.vmm.reservations.get(&base) != Some(&size) {
        return Err(INVALID_VALUE);
    }
    if state.vmm.mappings.range(base..base + size).next().is_some() {
        return Err(INVALID_VALUE);
    }
    state.vmm.reservations.remove(&base);
    state.memory.unreserve(base, size);
    Ok(())
}

/// Makes physical memory and returns its handle.
pub fn create(size: u64, prop: MemProp, flags: u64) -> Outcome<u64> {
    let mut state = lock()?;
    if flags != 0 || size == 0 || !is_page_multiple(size) || prop.kind != 1 {
        return Err(INVALID_VALUE);
    }
    let device = match (prop.location.kind, prop.location.id) {
        (DEVICE, id) if usize::try_from(id).is_ok_and(|id| id < state.devices.len()) => Some(id),
        (DEVICE, _) => return Err(INVALID_DEVICE),
        (HOST, _) | (HOST_NUMA, 0) => None,
        _ => return Err(INVALID_VALUE),
    };
    if let Some(device) = device {
        state.charge(device, size)?;
    }
    let physical = match state.vmm.store.create(size, prop, device) {
        Ok(physical) => physical,
        Err(code) => {
            if let Some(device) = device {
                state.refund(device, size);
            }
            return Err(code);
        }
    };
    Ok(state.vmm.handles.insert(Handle { physical, count: 1 }))
}

/// Drops a user of physical memory. With the last one the history of its bytes is forgotten.
pub fn drop_user(state: &mut State, physical: u64) {
    let Some(gone) = state.vmm.store.drop_user(physical) else {
        return;
    };
    state.model.forget(gone.place..gone.place + gone.size);
    if let Some(device) = gone.charged {
        state.refund(device, gone.size);
    }
}

/// Releases a handle once. The memory stays while it is mapped.
pub fn release(handle: u64) -> Outcome {
    let mut state = lock()?;
    let found = state
        .vmm
        .handles
        .get_mut(handle)
        .map_err(|_| INVALID_VALUE)?;
    found.count -= 1;
    if found.count == 0 {
        let gone = state.vmm.handles.remove(handle)?;
        drop_user(&mut state, gone.physical);
    }
    Ok(())
}

/// Returns the handle of the memory mapped at an address, given out once more.
pub fn retain(address: u64) -> Outcome<u64> {
    let mut state = lock()?;
    let (_, mapping) = state.vmm.mapping(address).ok_or(INVALID_VALUE)?;
    let (handle, physical) = (mapping.handle, mapping.physical);
    if let Ok(found) = state.vmm.handles.get_mut(handle) {
        found.count += 1;
        return Ok(handle);
    }
    // The program has released its handle: makes a new one for the same memory.
    state.vmm.store.keep(physical);
    Ok(state.vmm.handles.insert(Handle { physical, count: 1 }))
}

/// Maps the memory of a handle at reserved addresses.
pub fn map(address: u64, size: u64, offset: u64, handle: u64, flags: u64) -> Outcome {
    let mut state = lock()?;
    if flags != 0 || size == 0 || !is_page_multiple(address) {
        return Err(INVALID_VALUE);
    }
    let physical = state
        .vmm
        .handles
        .get(handle)
        .map_err(|_| INVALID_VALUE)?
        .physical;
    let memory = state.vmm.store.get(physical).ok_or(INVALID_VALUE)?.clone();
    // A handle is mapped as a whole or not at all (facts.md).
    if offset != 0 || size != memory.size {
        return Err(NOT_SUPPORTED);
    }
    let end = address.checked_add(size).ok_or(INVALID_VALUE)?;
    let holds = |(base, length): (u64, u64)| end <= base + length;
    if !state.vmm.reservation(address).is_some_and(holds)
        || state.vmm.mapping(address).is_some()
        || state.vmm.mappings.range(address..end).next().is_some()
    {
        return Err(INVALID_VALUE);
    }
    map_file(address, size, &memory.file, memory.offset)?;
    state.vmm.store.keep(physical);
    let mapping = Mapping {
        size,
        handle,
        physical,
        access: BTreeMap::new(),
    };
    state.vmm.mappings.insert(address, mapping);
    let allocation = Allocation {
        size,
        spacing: size,
        context: 0,
        device: memory.charged.unwrap_or(memory.prop.location.id),
        kind: Kind::Mapped,
        flags: 0,
        id: 0,
        on_free: None,
    };
    state.memory.insert(address, allocation);
    state.model.map(address..end, memory.place);
    Ok(())
}

/// Unmaps memory. It does not wait: under unfinished work this is a finding.
pub fn unmap(address: u64, size: u64) -> Outcome {
    let mut state = lock()?;
    if size == 0 || !is_page_multiple(address) || !is_page_multiple(size) {
        return Err(INVALID_VALUE);
    }
    let range = address..address.checked_add(size).ok_or(INVALID_VALUE)?;
    state.vmm.reservation(address).ok_or(INVALID_VALUE)?;
    for base in state.vmm.whole(&range).ok_or(INVALID_VALUE)? {
        let Some(mapping) = state.vmm.mappings.remove(&base) else {
            continue;
        };
        state.model.unmap(base..base + mapping.size, "unmap");
        state.memory.remove(base);
        unmap_file(base, mapping.size);
        drop_user(&mut state, mapping.physical);
    }
    Ok(())
}

/// Sets the access of locations to mapped memory.
pub fn set_access(address: u64, size: u64, wanted: &[(u32, i32, u32)]) -> Outcome {
    let mut state = lock()?;
    if size == 0 || !is_page_multiple(address) || !is_page_multiple(size) || wanted.is_empty() {
        return Err(INVALID_VALUE);
    }
    let range = address..address.checked_add(size).ok_or(INVALID_VALUE)?;
    for (kind, id, _) in wanted {
        if *kind == DEVICE {
            state.device(*id).map_err(|_| INVALID_VALUE)?;
        }
    }
    let within = state.vmm.whole(&range).ok_or(INVALID_VALUE)?;
    let covered: u64 = within
        .iter()
        .filter_map(|base| state.vmm.mappings.get(base))
        .map(|mapping| mapping.size)
        .sum();
    if covered != size {
        return Err(INVALID_VALUE);
    }
    // The host may use its own memory only.
    let is_device = |base: &u64| {
        let physical = state
            .vmm
            .mappings
            .get(base)
            .and_then(|mapping| state.vmm.store.get(mapping.physical));
        physical.is_some_and(|physical| physical.prop.location.kind == DEVICE)
    };
    if wanted.iter().any(|(kind, _, _)| *kind != DEVICE) && within.iter().any(is_device) {
        return Err(NOT_SUPPORTED);
    }
    for base in within {
        if let Some(mapping) = state.vmm.mappings.get_mut(&base) {
            mapping.access.extend(
                wanted
                    .iter()
                    .map(|(kind, id, flags)| ((*kind, *id), *flags)),
            );
        }
    }
    Ok(())
}

/// Returns the access of a location to the memory at an address; 0 for memory that the program did
/// not map.
pub fn access(kind: u32, id: i32, address: u64) -> Outcome<u64> {
    let state = lock()?;
    match state.vmm.mapping(address) {
        Some((_, mapping)) => Ok(mapping.access.get(&(kind, id)).copied().unwrap_or(0).into()),
        None => state.memory.find(address).map(|_| 0).ok_or(INVALID_VALUE),
    }
}

/// Returns a descriptor of the memory of a handle.
pub fn export(handle: u64, kind: u32, flags: u64) -> Outcome<i32> {
    let mut state = lock()?;
    let prop = state.vmm.prop(handle)?;
    // Only file descriptors are exported, and only if the memory was made for them.
    if flags != 0 || kind != 1 || prop.handles & 1 == 0 {
        return Err(INVALID_VALUE);
    }
    let physical = state.vmm.handles.get(handle)?.physical;
    let Vmm {
        store, mappings, ..
    } = &mut state.vmm;
    store.separate(physical, |file, size| {
        let mut places = mappings.iter().filter(|(_, one)| one.physical == physical);
        places.try_for_each(|(base, _)| map_file(*base, size, file, 0))
    })?;
    store.export(physical)
}

/// Returns a new handle of the memory behind a descriptor.
pub fn import(fd: i32, kind: u32) -> Outcome<u64> {
    let mut state = lock()?;
    if kind != 1 {
        return Err(INVALID_VALUE);
    }
    let physical = state.vmm.store.import(fd)?;
    Ok(state.vmm.handles.insert(Handle { physical, count: 1 }))
}
