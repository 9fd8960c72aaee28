//! Questions about addresses, and calls that are wrong there.

use super::*;
use crate::api::{IpcHandle, Location};

/// The driver's unit of physical memory, in bytes.
pub(super) const PAGE: u64 = 2 << 20;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY: u32 = 1;
/// Value that stays where a function fails.
const UNTOUCHED: u64 = 77;

/// The block of a slot, live or freed, and the address of a place. `None`: it lies in other memory
/// or in a graph's.
pub(super) fn address_of(world: &World, slot: u8, place: Place) -> Option<(Block, u64)> {
    let block = world.blocks[usize::from(slot)];
    let is_known = matches!(block.state, State::Live | State::Freed) && block.kind != Kind::Graph;
    let (start, bytes) = (block.address, block.bytes);
    let address = match place {
        Place::Offset(offset) => start + u64::from(offset),
        Place::Permille(permille) => start + bytes * u64::from(permille) / 1000,
        Place::End => start + bytes,
        // Only questions about whole pages are asked there, and natively no block has whole pages.
        Place::Page(page) => {
            return is_known.then_some((block, start / PAGE * PAGE + u64::from(page) * PAGE));
        }
    };
    let is_other = || {
        world.of_graphs.iter().any(|range| range.contains(&address)) || world.overlaps(address, 1)
    };
    (is_known && (is_inside(&block, address) || !is_other())).then_some((block, address))
}

/// Tells whether an address is in a block that is live.
fn is_inside(block: &Block, address: u64) -> bool {
    block.state == State::Live && address - block.address < block.bytes.max(1)
}

pub(super) fn ask(world: &mut World, step: &Step) -> bool {
    match step.op {
        Op::Ask {
            block,
            freed,
            place,
            question,
        } => match address_of(world, block, place) {
            Some((block, _)) if freed != (block.state == State::Freed) => false,
            // Nothing says when a stream gets to a free of memory that is not a pool's.
            Some((block, _)) if block.is_queued && block.kind == Kind::Context => false,
            Some((block, address)) => answer(world, &block, address, question),
            None => false,
        },
        Op::AskMemory => {
            let (mut free, mut total) = (0, 0);
            let code = call!(world, mem_info, &mut free, &mut total);
            world.seen.extend([code, free as u64, total as u64]);
            true
        }
        Op::MapOwn { pages } => mapping::own(world, pages.into()),
        _ => false,
    }
}

fn answer(world: &mut World, block: &Block, address: u64, question: Question) -> bool {
    let device = i32::from(block.device);
    let location = Location::device(block.device);
    let bytes = (block.bytes as usize).max(1);
    let codes: &[u64] = match question {
        Question::Range => {
            let (mut base, mut size) = (block.address, 0);
            let code = call!(world, address_range, &mut base, &mut size, address);
            &[code, base.wrapping_sub(block.address), size as u64]
        }
        Question::Attribute(number) => {
            let mut value = UNTOUCHED;
            let code = call!(world, pointer_attribute, &mut value, number.into(), address);
            let value = if code == 0 {
                attribute(world, block, number, value)
            } else {
                0
            };
            &[code, value]
        }
        Question::Attributes(list) => {
            return attributes(world, block, address, ATTRIBUTE_LISTS[usize::from(list)]);
        }
        Question::SetSyncMemops(on) => &[call!(world, pointer_set, &u32::from(on), 6, address)],
        Question::IpcHandle => return ipc_handle(world, block, address),
        Question::IpcClose => &[call!(world, ipc_close, address)],
        Question::Retain => return mapping::retained(world, block, address),
        Question::Exported(bytes) => {
            let mut descriptor = -1;
            // 1: CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
            let code = call!(
                world,
                range_handle,
                &mut descriptor,
                address,
                bytes as usize,
                1,
                0
            );
            &[code]
        }
        Question::PoolExport => {
            let mut data = IpcHandle([0; 8]);
            &[call!(world, pool_export_pointer, &mut data, address)]
        }
        // Elsewhere natively is no memory at all, and nothing tells it from the host's.
        Question::Register if !is_inside(block, address) => return false,
        Question::Register => &[call!(world, host_register, address, bytes, 0)],
        // The codes for device memory and for other memory differ.
        Question::Unregister => &[u64::from(call!(world, host_unregister, address) != 0)],
        Question::AsHost => {
            let (mut pointer, mut flags) = (0, 0);
            let code = call!(world, host_device_pointer, &mut pointer, address, 0);
            let flagged = call!(world, host_flags, &mut flags, address);
            &[code, flagged]
        }
        Question::FreeHost => &[call!(world, host_free, address)],
        Question::Advise => {
            // 3: CU_MEM_ADVISE_SET_PREFERRED_LOCATION
            let code = call!(world, advise, address, bytes, 3, device);
            &[code, call!(world, advise_v2, address, bytes, 3, location)]
        }
        Question::Prefetch => {
            let code = call!(world, prefetch, address, bytes, device, 1);
            &[
                code,
                call!(world, prefetch_v2, address, bytes, location, 0, 1),
            ]
        }
        // 1: CU_MEM_ATTACH_GLOBAL
        Question::Attach => &[call!(world, attach, 1, address, 0, 1)],
        Question::RangeAttribute(number) => {
            let (mut value, number) = (0, i32::from(number));
            let code = call!(
                world,
                range_attribute,
                &mut value,
                4,
                number,
                address,
                bytes
            );
            let data = std::ptr::from_mut(&mut value);
            let all = call!(
                world,
                range_attributes,
                &data,
                &4,
                &number,
                1,
                address,
                bytes
            );
            &[code, all]
        }
        _ => return mapping::change(world, block, address, question),
    };
    world.seen.extend(codes);
    true
}

fn attributes(world: &mut World, block: &Block, address: u64, numbers: &[i32]) -> bool {
    let mut values = [0u64; 8];
    let pointers = values.each_mut().map(std::ptr::from_mut);
    let code = call!(
        world,
        pointer_attributes,
        numbers.len() as u32,
        numbers.as_ptr(),
        pointers.as_ptr(),
        address
    );
    world.seen.push(code);
    for (number, value) in numbers.iter().zip(values) {
        let value = attribute(world, block, *number as u8, value);
        world.seen.push(value);
    }
    true
}

/// Asks for the handle of a block. It is the same each time, and cannot be opened in its own
/// process.
fn ipc_handle(world: &mut World, block: &Block, address: u64) -> bool {
    // Other processes ask through a socket, which may be among the closed descriptors.
    if crate::descriptors::are_closed() {
        return false;
    }
    let (mut first, mut second, mut opened) = (IpcHandle([0; 8]), IpcHandle([1; 8]), 0);
    let code = call!(world, ipc_get, &mut first, address);
    world.seen.push(code);
    if code != 0 {
        return true;
    }
    let again = call!(world, ipc_get, &mut second, block.address);
    let open = call!(world, ipc_open, &mut opened, first, LAZY);
    let close = call!(world, ipc_close, block.address);
    world
        .seen
        .extend([again, u64::from(first == second), open, close]);
    true
}

/// An attribute in a form that both runs have in common: slots for handles, distances for
/// addresses.
pub(super) fn attribute(world: &World, block: &Block, number: u8, value: u64) -> u64 {
    match number {
        1 => match value {
            0 => 0,
            handle => 1 + world.slot_of(handle).map_or(98, u64::from),
        },
        3 | 4 | 11 if value != 0 => value.wrapping_sub(block.address),
        7 => u64::from(value != 0),
        17 => {
            let made = world
                .pools
                .iter()
                .position(|pool| value != 0 && *pool == value);
            let default = world
                .defaults
                .iter()
                .position(|pool| value != 0 && *pool == value);
            match (value, made, default) {
                (0, _, _) => 0,
                (_, Some(slot), _) => 1 + slot as u64,
                (_, _, Some(device)) => 51 + device as u64,
                // No document defines the value for the handle of a destroyed pool.
                _ => 0,
            }
        }
        _ => value,
    }
}
