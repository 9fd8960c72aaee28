//! Contents of blocks: fills, copies, kernels, and host functions.

use super::*;

/// True if the work is on a device other than the block's. This needs access, which is not modelled
/// here.
fn is_strange(world: &World, step: &Step) -> bool {
    let (block, stream) = match step.op {
        Op::Fill { block, stream, .. }
        | Op::Upload { block, stream, .. }
        | Op::Kernel { block, stream, .. } => (block, stream),
        Op::Read { block } => (block, Stream::LEGACY),
        Op::Copy { from, to, stream } => {
            let devices = [from, to].map(|slot| world.blocks[usize::from(slot)].device);
            if devices[0] != devices[1] {
                return true;
            }
            (to, stream)
        }
        _ => return false,
    };
    let current = world.current().unwrap_or(0);
    let context = world.context_of(stream, current);
    world.context_devices[usize::from(context)] != world.blocks[usize::from(block)].device
}

pub(super) fn contents(world: &mut World, step: &Step) -> bool {
    if world.devices > 1 && is_strange(world, step) {
        return false;
    }
    match step.op {
        Op::Fill {
            block,
            value,
            stream,
            whole,
        } => {
            let Some(found) = live(world, block) else {
                return false;
            };
            let captured = is_capturing(world, step, stream);
            let handle = world.handle(stream);
            let set = |world: &World, offset: u64, length: u64| {
                through!(
                    step,
                    world,
                    set_async,
                    set_async_ptsz,
                    found.address + offset,
                    value,
                    length as usize,
                    handle
                )
            };
            let mut codes = Vec::new();
            if found.bytes <= 3 * PATCH || whole && found.bytes <= WHOLE {
                codes.push(set(world, 0, found.bytes));
            } else {
                codes.extend(
                    patches(found.bytes, PATCH).map(|(offset, length)| set(world, offset, length)),
                );
            }
            if codes.iter().all(|code| *code == 0) {
                written(world, stream, captured, block, value);
            }
            world.seen.append(&mut codes);
        }
        Op::Copy { from, to, stream } => {
            let (Some(source), Some(target)) = (live(world, from), live(world, to)) else {
                return false;
            };
            if source.value == 0 {
                return false;
            }
            let captured = is_capturing(world, step, stream);
            let handle = world.handle(stream);
            let length = source.bytes.min(target.bytes).min(PATCH);
            let mut codes = [0; 3];
            for (code, ((a, _), (b, _))) in codes.iter_mut().zip(
                patches(source.bytes, length)
                    .into_iter()
                    .zip(patches(target.bytes, length)),
            ) {
                let (to, from) = (target.address + b, source.address + a);
                *code = through!(
                    step,
                    world,
                    copy_on_device_async,
                    copy_on_device_async_ptsz,
                    to,
                    from,
                    length as usize,
                    handle
                );
            }
            let complete = length >= target.bytes.min(LOOK as u64);
            if codes == [0; 3] {
                // A captured copy reads its source when it runs. The contents of its target are
                // then unknown.
                let value = if captured || !complete {
                    0
                } else {
                    source.value
                };
                written(world, stream, captured, to, value);
            }
            world.seen.extend(codes);
        }
        Op::CopyPeer {
            from,
            to,
            from_context,
            to_context,
            stream,
        } => {
            let (Some(source), Some(target)) = (live(world, from), live(world, to)) else {
                return false;
            };
            let contexts = [to_context, from_context].map(|slot| world.contexts[usize::from(slot)]);
            if source.value == 0 || contexts.contains(&0) {
                return false;
            }
            let captured = is_capturing(world, step, stream);
            let length = source.bytes.min(target.bytes).min(PATCH);
            let handle = world.handle(stream);
            let [to_handle, from_handle] = contexts;
            let (to_address, from_address) = (target.address, source.address);
            let length = length as usize;
            let code = match stream {
                Stream::LEGACY => call!(
                    world,
                    copy_peer,
                    to_address,
                    to_handle,
                    from_address,
                    from_handle,
                    length
                ),
                _ => call!(
                    world,
                    copy_peer_async,
                    to_address,
                    to_handle,
                    from_address,
                    from_handle,
                    length,
                    handle
                ),
            };
            if code == 0 {
                written(world, stream, captured, to, 0);
            }
            world.seen.push(code);
        }
        Op::Upload {
            block,
            value,
            host,
            stream,
        } => {
            let Some(found) = live(world, block) else {
                return false;
            };
            let (address, room, _) = world.hosts[usize::from(host)];
            if address == 0 || is_capturing(world, step, stream) {
                return false;
            }
            let length = found.bytes.min(PATCH).min(room.into()) as usize;
            // SAFETY: memory of the driver's for the host, of at least this length.
            unsafe { std::ptr::write_bytes(address as *mut u8, value, length) };
            let handle = world.handle(stream);
            let codes = patches(found.bytes, length as u64).map(|(offset, length)| {
                call!(
                    world,
                    copy_from_host_async,
                    found.address + offset,
                    address as *const u8,
                    length as usize,
                    handle
                )
            });
            let complete = length as u64 >= found.bytes.min(LOOK as u64);
            if codes == [0; 3] {
                written(
                    world,
                    stream,
                    false,
                    block,
                    if complete { value } else { 0 },
                );
            }
            world.seen.extend(codes);
        }
        Op::Read { block } => {
            let Some(found) = live(world, block).filter(|block| block.value != 0) else {
                return false;
            };
            for (offset, length) in patches(found.bytes, LOOK as u64) {
                let mut buffer = [0u8; LOOK];
                let code = call!(
                    world,
                    copy_to_host,
                    buffer.as_mut_ptr(),
                    found.address + offset,
                    length as usize
                );
                let is_right = buffer[..length as usize]
                    .iter()
                    .all(|byte| *byte == found.value);
                world.seen.push(code);
                world.seen.push(u64::from(code != 0 || is_right));
            }
        }
        Op::Kernel {
            block,
            stream,
            writes,
        } => {
            let Some(found) = live(world, block).filter(|block| block.kind != Kind::Graph) else {
                return false;
            };
            let touch = crate::api::Touch {
                address: found.address,
                bytes: found.bytes,
                writes: writes.into(),
            };
            let code = call!(world, kernel, world.handle(stream), 0, 1, &touch);
            world.seen.push(code);
        }
        _ => return false,
    }
    true
}

pub(super) fn host(world: &mut World, step: &Step) -> bool {
    let code = match step.op {
        Op::HostAllocate { host, bytes } => {
            if world.hosts[usize::from(host)].0 != 0 {
                return false;
            }
            let Some(context) = world.current() else {
                return false;
            };
            let mut address = 0;
            let code = call!(world, host_alloc, &mut address, bytes as usize, 0);
            if code == 0 {
                world.hosts[usize::from(host)] = (address, bytes, context);
            }
            code
        }
        Op::HostFree { host } => {
            let (address, _, _) = world.hosts[usize::from(host)];
            if address == 0 {
                return false;
            }
            let code = call!(world, host_free, address);
            if code == 0 {
                world.hosts[usize::from(host)] = (0, 0, 0);
            }
            code
        }
        _ => return false,
    };
    world.seen.push(code);
    true
}
