//! Steps that allocate and free.

use super::*;

/// The slot of the pool that an allocation names; 0 if it names none.
fn index_of(from: From) -> u8 {
    match from {
        From::Pool(pool, _) => pool,
        _ => 0,
    }
}

pub(super) fn allocate(world: &mut World, step: &Step, slot: u8, bytes: u64, from: From) -> bool {
    const SMALL: u64 = 1 << 20;
    let index = usize::from(slot);
    if matches!(world.blocks[index].state, State::Live | State::Missing) {
        return false;
    }
    // An allocation that a capture forbids succeeds here, as promised. Natively there is no such
    // memory. Here a pool keeps it until it is synchronised.
    let is_kept = matches!(from, From::Stream(_) | From::Pool(..));
    if bytes > SMALL && is_kept && world.is_forbidden() {
        return false;
    }
    const UNTOUCHED: u64 = 0x00ab_cdef_0000;
    let mut address = UNTOUCHED;
    let mut size = bytes;
    let current = world.current();
    let (kind, context, captured, code) = match from {
        From::Plain => (
            Kind::Context,
            current,
            false,
            call!(world, alloc, &mut address, bytes as usize),
        ),
        From::Pitched(width) => {
            let mut pitch = 0;
            let height = (bytes as usize).div_ceil(width as usize);
            let code = call!(
                world,
                alloc_pitch,
                &mut address,
                &mut pitch,
                width as usize,
                height,
                4
            );
            if code == 0 {
                size = (pitch * height) as u64;
                world.seen.push(pitch as u64);
            }
            (Kind::Context, current, false, code)
        }
        From::Stream(stream) | From::Pool(_, stream) => {
            let captured = is_capturing(world, step, stream);
            let context = match stream.slot() {
                Some(slot) => Some(world.stream_contexts[slot]),
                None => current,
            };
            let handle = world.handle(stream);
            let code = match from {
                From::Pool(pool, _) => {
                    let pool = world.pools[usize::from(pool)];
                    let device = context.map(|context| world.context_devices[usize::from(context)]);
                    if pool == 0 || device != Some(world.pool_devices[usize::from(index_of(from))])
                    {
                        return false;
                    }
                    through!(
                        step,
                        world,
                        alloc_from,
                        alloc_from_ptsz,
                        &mut address,
                        bytes as usize,
                        pool,
                        handle
                    )
                }
                _ => through!(
                    step,
                    world,
                    alloc_async,
                    alloc_async_ptsz,
                    &mut address,
                    bytes as usize,
                    handle
                ),
            };
            (
                if captured { Kind::Graph } else { Kind::Pool },
                context,
                captured,
                code,
            )
        }
    };
    let given = match address {
        0 => 0,
        UNTOUCHED => 1,
        _ => 2,
    };
    world.seen.insert(0, code);
    world.seen.push(given);
    let context = context.unwrap_or(0);
    let device = world.context_devices[usize::from(context)];
    if code == 0 && given == 2 {
        let overlap = world.overlaps(address, size);
        let aligned = address.is_multiple_of(256);
        world.seen.extend([u64::from(overlap), u64::from(aligned)]);
        let capture = match from {
            From::Stream(stream) | From::Pool(_, stream) if captured => key(world, stream),
            _ => 0,
        };
        let serial = world.serial();
        world.blocks[index] = Block {
            state: State::Live,
            address,
            bytes: size,
            kind,
            context,
            device,
            value: 0,
            serial,
            capture,
            is_queued: false,
        };
        match kind {
            Kind::Graph => world.of_graphs.push(address..address + size.max(1)),
            _ => drop(world.live.insert(address, (size, slot))),
        }
    }
    let free = free_bytes(world, context);
    world.seen.push(free);
    true
}

/// Free bytes of a context's device, as the driver counts them; of use natively only.
fn free_bytes(world: &World, context: u8) -> u64 {
    if world.native.is_some() {
        return 0;
    }
    let (mut free, mut total, mut current) = (0, 0, 0);
    // A stream may be of another device than the current context.
    call!(world, ctx_get, &mut current);
    let other = world.contexts[usize::from(context)];
    let is_elsewhere = other != 0 && other != current;
    if is_elsewhere {
        call!(world, ctx_set, other);
    }
    call!(world, mem_info, &mut free, &mut total);
    if is_elsewhere {
        call!(world, ctx_set, current);
    }
    free as u64
}

pub(super) fn free(world: &mut World, step: &Step) -> bool {
    // The shim performs frees that a capture forbids, as promised. After such a free the two runs
    // would hold different blocks, and natively the program's use of them would break the capture.
    if world.is_forbidden() && matches!(step.op, Op::Free { .. } | Op::FreeAsync { .. }) {
        return false;
    }
    let code = match step.op {
        Op::Free { block } => {
            let Some(found) = live(world, block) else {
                return missing_freed(world, block);
            };
            let code = call!(world, free, found.address);
            if code == 0 {
                ended(world, block);
            }
            code
        }
        Op::FreeAsync { block, stream } => {
            let Some(found) = live(world, block) else {
                return missing_freed(world, block);
            };
            let handle = world.handle(stream);
            let code = through!(
                step,
                world,
                free_async,
                free_async_ptsz,
                found.address,
                handle
            );
            if code == 0 {
                ended(world, block);
                world.blocks[usize::from(block)].is_queued = true;
            }
            code
        }
        Op::FreeWrongly {
            block,
            place,
            stream,
        } => {
            let Some((found, address)) = ask::address_of(world, block, place) else {
                return false;
            };
            if found.state == State::Live && address == found.address {
                return false;
            }
            match stream {
                Some(stream) => through!(
                    step,
                    world,
                    free_async,
                    free_async_ptsz,
                    address,
                    world.handle(stream)
                ),
                None => call!(world, free, address),
            }
        }
        _ => return false,
    };
    world.seen.push(code);
    true
}

/// A free of a block that exists natively and was refused here. After it both sides have nothing
/// there.
fn missing_freed(world: &mut World, slot: u8) -> bool {
    let freed = world.theirs.len() >= 2 && world.theirs[world.theirs.len() - 2] == 0;
    let block = &mut world.blocks[usize::from(slot)];
    if block.state == State::Missing && freed {
        block.state = State::Empty;
    }
    false
}

/// Requests all memory that must be free under any policy, and frees it.
pub(super) fn probe(world: &mut World, step: &Step, async_: bool) -> bool {
    const ROOM: u64 = 256 << 20;
    const KEPT: u64 = 128 << 20;
    if step.context == AS_IS || world.contexts[usize::from(step.context)] == 0 {
        return false;
    }
    // As for allocations.
    if async_ && world.is_forbidden() {
        return false;
    }
    let device = world.context_devices[usize::from(step.context)];
    let facts = world.facts(device);
    // Blocks that are live only natively count here as well.
    let missing: u64 = world
        .blocks
        .iter()
        .filter(|block| block.state == State::Missing && block.device == device)
        .map(|block| judge::cost(block.bytes))
        .sum();
    // A driver's pool keeps pieces of 32 MiB by its threshold; how many depends on where its blocks
    // lie.
    let kept = if facts.raised { KEPT } else { 0 };
    let taken = facts.held + facts.extra + missing + ROOM + kept;
    let Some(bytes) = world
        .memory
        .checked_sub(taken)
        .filter(|bytes| *bytes > 64 << 20)
    else {
        return false;
    };
    let bytes = bytes >> 21 << 21;
    let mut address = 0;
    let (code, freed) = if async_ {
        let code = call!(world, alloc_async, &mut address, bytes as usize, 1);
        (
            code,
            if code == 0 {
                call!(world, free_async, address, 1)
            } else {
                0
            },
        )
    } else {
        let code = call!(world, alloc, &mut address, bytes as usize);
        (
            code,
            if code == 0 {
                call!(world, free, address)
            } else {
                0
            },
        )
    };
    if async_ {
        call!(world, ctx_sync);
    }
    world.was_vast |= code == 0 && bytes >= crate::world::VAST;
    world.seen.extend([code, freed, OUT_OF_MEMORY]);
    true
}
