//! Memory of the allocation nodes of graphs.
//!
//! A node gets its address at its creation, and memory at that address at the first launch. The
//! memory stays with the device's graphs until `cuDeviceGraphMemTrim` frees the unused part.

use std::collections::HashMap;
use std::ops::Range;

use crate::abi::{MemAllocNodeParams, MemLocation, MemPoolProps};
use crate::codes::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, Outcome};
use crate::env::{Feature, settings};
use crate::memory::{Allocation, Kind, PAGE, round};
use crate::state::{Guard, State};

/// Unit in which the driver takes memory for graphs, in bytes (recorded.txt).
const PIECE: u64 = 32 << 20;

/// A device's memory for graphs, in bytes.
#[derive(Debug, Default)]
pub struct GraphMemory {
    /// Memory held now, and the highest so far. The driver reports all of it as used until a trim.
    pub reserved: [u64; 2],
    /// Memory at addresses of allocation nodes.
    backed: u64,
    blocks: HashMap<u64, Block>,
    /// Addresses of allocations whose context has ended, with bytes and number of owners. Nothing
    /// else is placed there while a graph names them.
    orphans: HashMap<u64, (u64, u32)>,
}

#[derive(Debug, Default)]
struct Block {
    /// True if memory lies at the address.
    is_backed: bool,
    /// True from the allocation by a launch until the free.
    is_live: bool,
    /// Number of nodes and executable graphs that refer to it.
    owners: u32,
}

/// Reserves an address for a new allocation node of the context.
pub fn reserve(state: &mut State, device: i32, bytes: u64, context: u64) -> Outcome<Range<u64>> {
    if settings().lacks(Feature::Pools) {
        return Err(NOT_SUPPORTED);
    }
    let total = state.device(device).map_err(|_| INVALID_VALUE)?.total;
    if bytes > total {
        return Err(OUT_OF_MEMORY);
    }
    let base = state.memory.reserve(round(bytes), PAGE)?;
    let allocation = Allocation {
        size: bytes,
        spacing: round(bytes),
        context,
        device,
        kind: Kind::Graph,
        flags: 0,
        id: 0,
        on_free: Some(free_now),
    };
    state.memory.insert(base, allocation);
    let block = Block {
        owners: 1,
        ..Block::default()
    };
    state
        .device(device)?
        .graph_memory
        .blocks
        .insert(base, block);
    Ok(base..base + bytes)
}

/// Returns the parameters that `cuGraphMemAllocNodeGetParams` reports.
pub fn params(device: i32, bytes: Range<u64>) -> MemAllocNodeParams {
    MemAllocNodeParams {
        pool: MemPoolProps {
            kind: 1,
            handles: 0,
            location: MemLocation {
                kind: 1,
                id: device,
            },
            security: std::ptr::null(),
            max_size: 0,
            usage: 0,
            reserved: [0; 54],
        },
        access: std::ptr::null(),
        access_count: 0,
        bytes: (bytes.end - bytes.start) as usize,
        address: bytes.start,
    }
}

fn device_of(state: &State, base: u64) -> Outcome<(i32, u64)> {
    let found = state
        .memory
        .get(base)
        .filter(|found| found.kind == Kind::Graph);
    found
        .map(|found| (found.device, found.spacing))
        .ok_or(INVALID_VALUE)
}

/// Adds an owner of the allocation.
pub fn share(state: &mut State, base: u64) -> Outcome {
    let (device, _) = device_of(state, base)?;
    let memory = &mut state.device(device)?.graph_memory;
    memory.blocks.get_mut(&base).ok_or(INVALID_VALUE)?.owners += 1;
    Ok(())
}

/// Drops an owner of the allocation. The last one removes it, unless it is live.
pub fn drop_node(state: &mut State, base: u64) {
    let Ok((device, _)) = device_of(state, base) else {
        drop_orphan(state, base);
        return;
    };
    let Ok(device) = state.device(device) else {
        return;
    };
    if let Some(block) = device.graph_memory.blocks.get_mut(&base) {
        block.owners -= 1;
        if block.owners == 0 && !block.is_live {
            let _ = release(state, base);
        }
    }
}

fn drop_orphan(state: &mut State, base: u64) {
    for device in &mut state.devices {
        let orphans = &mut device.graph_memory.orphans;
        if let Some((bytes, owners)) = orphans.get_mut(&base) {
            *owners -= 1;
            if *owners == 0 {
                state.memory.unreserve(base, *bytes);
                orphans.remove(&base);
            }
            return;
        }
    }
}

/// Allocates for a launch: puts memory at the address.
pub fn begin_use(state: &mut State, base: u64) -> Outcome {
    let (ordinal, spacing) = device_of(state, base)?;
    let block = state.device(ordinal)?.graph_memory.blocks.get_mut(&base);
    let (is_live, is_backed) = block
        .map(|block| (block.is_live, block.is_backed))
        .ok_or(INVALID_VALUE)?;
    if is_live {
        return Err(INVALID_VALUE);
    }
    let memory = &state.device(ordinal)?.graph_memory;
    let backed = memory.backed + if is_backed { 0 } else { spacing };
    let growth = backed
        .next_multiple_of(PIECE)
        .saturating_sub(memory.reserved[0]);
    state.charge(ordinal, growth)?;
    let memory = &mut state.device(ordinal)?.graph_memory;
    memory.backed = backed;
    memory.reserved[0] += growth;
    memory.reserved[1] = memory.reserved[1].max(memory.reserved[0]);
    let block = memory.blocks.get_mut(&base).ok_or(INVALID_VALUE)?;
    (block.is_live, block.is_backed) = (true, true);
    Ok(())
}

/// True from the allocation by a launch until the free.
pub fn is_live(state: &mut State, base: u64) -> bool {
    let Ok((device, _)) = device_of(state, base) else {
        return false;
    };
    let block = state
        .device(device)
        .ok()
        .and_then(|device| device.graph_memory.blocks.get(&base));
    block.is_some_and(|block| block.is_live)
}

/// Frees the allocation in a launch or on a stream. The memory stays with the graphs.
pub fn end_use(state: &mut State, base: u64) -> Outcome {
    let (ordinal, _) = device_of(state, base)?;
    let memory = &mut state.device(ordinal)?.graph_memory;
    let block = memory.blocks.get_mut(&base).ok_or(INVALID_VALUE)?;
    if !block.is_live {
        return Err(INVALID_VALUE);
    }
    block.is_live = false;
    if block.owners == 0 {
        release(state, base)?;
    }
    Ok(())
}

fn free_now(state: &mut Guard, base: u64) -> Outcome {
    end_use(state, base)
}

/// Removes an allocation. Graphs may still name it if its context has ended: they keep the address.
pub fn release(state: &mut State, base: u64) -> Outcome {
    let allocation = state.memory.remove(base).ok_or(INVALID_VALUE)?;
    let bytes = allocation.spacing;
    state.model.forget(base..base + bytes);
    let memory = &mut state.device(allocation.device)?.graph_memory;
    let block = memory.blocks.remove(&base).unwrap_or_default();
    if block.is_backed {
        memory.backed -= bytes;
    }
    if block.owners > 0 {
        memory.orphans.insert(base, (bytes, block.owners));
    } else {
        state.memory.unreserve(base, bytes);
    }
    Ok(())
}

/// Frees the memory of allocations that are not in use.
pub fn trim(state: &mut State, ordinal: i32) -> Outcome {
    let memory = &mut state.device(ordinal)?.graph_memory;
    let mut idle = Vec::new();
    for (base, block) in &mut memory.blocks {
        if block.is_backed && !block.is_live {
            block.is_backed = false;
            idle.push(*base);
        }
    }
    let mut freed = 0;
    for base in idle {
        freed += device_of(state, base)?.1;
    }
    let memory = &mut state.device(ordinal)?.graph_memory;
    memory.backed -= freed;
    let kept = memory.backed.next_multiple_of(PIECE);
    let given_back = memory.reserved[0].saturating_sub(kept);
    memory.reserved[0] = kept;
    state.refund(ordinal, given_back);
    Ok(())
}
