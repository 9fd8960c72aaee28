//! Virtual memory management: of memory that the program maps itself, and of blocks, where it is
//! wrong.

use super::ask::PAGE;
use super::*;
use crate::api::{Access, Location, MemoryProps};

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: i32 = 1;
const READ_WRITE: i32 = 3;

/// Physical memory of one page that can be exported. An error: the driver's code.
fn create(world: &World, device: u8) -> Result<u64, u64> {
    let props = MemoryProps {
        kind: 1,
        handles: DESCRIPTOR,
        location: Location::device(device),
        rest: [0; 2],
    };
    let mut handle = 0;
    match call!(world, memory_create, &mut handle, PAGE as usize, &props, 0) {
        0 => Ok(handle),
        code => Err(code),
    }
}

/// The handle of the memory behind an address: natively there is none that the program could have.
pub(super) fn retained(world: &mut World, block: &Block, address: u64) -> bool {
    let (mut handle, mut descriptor, mut base, mut size) = (0, -1, 0, 0);
    let code = call!(world, retain_handle, &mut handle, address);
    world.seen.push(code);
    if code != 0 {
        return true;
    }
    // As NCCL registers a buffer: the handle is shared, and taken for the range of the address.
    let shared = call!(world, memory_export, &mut descriptor, handle, DESCRIPTOR, 0);
    call!(world, address_range, &mut base, &mut size, block.address);
    let released = call!(world, memory_release, handle);
    if descriptor >= 0 {
        // SAFETY: the descriptor that the driver made for us.
        unsafe { libc::close(descriptor) };
    }
    world.seen.extend([
        shared,
        base.wrapping_sub(block.address),
        size as u64,
        released,
    ]);
    true
}

/// Queries or changes the mapping or the access rights at an address of a block.
pub(super) fn change(world: &mut World, block: &Block, address: u64, question: Question) -> bool {
    let bytes = |pages: u8| usize::from(pages) * PAGE as usize;
    let location = Location::device(block.device);
    let code = match question {
        Question::Access => {
            let mut flags = 0;
            call!(world, get_access, &mut flags, &location, address)
        }
        Question::SetAccess(flags, pages) => {
            let access = Access {
                location,
                flags: flags.into(),
            };
            call!(world, set_access, address, bytes(pages), &access, 1)
        }
        Question::Map => {
            let handle = match create(world, block.device) {
                Ok(handle) => handle,
                Err(OUT_OF_MEMORY) => return false,
                Err(code) => {
                    world.seen.push(code);
                    return true;
                }
            };
            let code = call!(world, map, address, PAGE as usize, 0, handle, 0);
            let released = call!(world, memory_release, handle);
            world.seen.push(code);
            released
        }
        Question::Unmap(pages) => call!(world, unmap, address, bytes(pages)),
        Question::FreeAddresses(pages) => call!(world, free_addresses, address, bytes(pages)),
        _ => return false,
    };
    world.seen.push(code);
    true
}

/// Maps, uses, queries, shares and frees memory of the program's own.
pub(super) fn own(world: &mut World, pages: u64) -> bool {
    let Some(context) = world.current() else {
        return false;
    };
    let device = world.context_devices[usize::from(context)];
    let bytes = (pages * PAGE) as usize;
    let mut base = 0;
    let reserved = call!(world, reserve, &mut base, bytes, 0, 0, 0);
    world.seen.push(reserved);
    if reserved != 0 {
        return true;
    }
    let handles: Vec<_> = (0..pages).map(|_| create(world, device)).collect();
    let is_whole = handles.iter().all(Result::is_ok);
    if is_whole {
        use_own(world, device, base, &handles);
    }
    for handle in handles.iter().flatten() {
        let released = call!(world, memory_release, *handle);
        world.seen.push(released);
    }
    let freed = call!(world, free_addresses, base, bytes);
    world.seen.push(freed);
    // Shortages are judged by allocations.
    is_whole || !handles.contains(&Err(OUT_OF_MEMORY))
}

fn use_own(world: &mut World, device: u8, base: u64, handles: &[Result<u64, u64>]) {
    let bytes = handles.len() * PAGE as usize;
    for (handle, address) in handles
        .iter()
        .flatten()
        .zip((base..).step_by(PAGE as usize))
    {
        let mapped = call!(world, map, address, PAGE as usize, 0, *handle, 0);
        world.seen.push(mapped);
    }
    let location = Location::device(device);
    let access = Access {
        location,
        flags: READ_WRITE,
    };
    let (mut flags, mut handle, mut other, mut descriptor) = (0, 0, 0, -1);
    let last = base + bytes as u64 - 1;
    let allowed = call!(world, set_access, base, bytes, &access, 1);
    let asked = call!(world, get_access, &mut flags, &location, last);
    let retained = call!(world, retain_handle, &mut handle, last);
    let is_same = handles.last() == Some(&Ok(handle));
    let exported = call!(world, memory_export, &mut descriptor, handle, DESCRIPTOR, 0);
    let imported = call!(
        world,
        memory_import,
        &mut other,
        descriptor as u64,
        DESCRIPTOR
    );
    if descriptor >= 0 {
        // SAFETY: the descriptor that the driver made for us.
        unsafe { libc::close(descriptor) };
    }
    let released = [other, handle].map(|handle| call!(world, memory_release, handle));
    world.seen.extend([
        allowed,
        asked,
        flags,
        retained,
        u64::from(is_same),
        exported,
        imported,
    ]);
    world.seen.extend(released);
    let mut byte = 0;
    if world.captures.is_empty() {
        let set = call!(world, set_async, last, 0x5a, 1, 1);
        let read = call!(world, copy_to_host, &mut byte, last, 1);
        world.seen.extend([set, read, byte.into()]);
    }
    let part = call!(world, unmap, base, PAGE as usize);
    let rest = match bytes - PAGE as usize {
        0 => 0,
        rest => call!(world, unmap, base + PAGE, rest),
    };
    world.seen.extend([part, rest]);
}
