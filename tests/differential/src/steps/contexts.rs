//! Steps on contexts and streams.

use super::*;

/// Frees the pools' blocks of a device. False if one is left.
///
/// No document defines their state after the end of the device's primary context.
fn drain(world: &mut World, device: u8) -> bool {
    for context in (0..CONTEXTS).rev() {
        if world.contexts[context] != 0 && world.context_devices[context] == device {
            call!(world, ctx_set, world.contexts[context]);
            call!(world, ctx_sync);
        }
    }
    let mut is_empty = true;
    for slot in 0..BLOCKS {
        let block = world.blocks[slot];
        if block.kind != Kind::Pool || block.device != device {
            continue;
        }
        match block.state {
            State::Live if call!(world, free, block.address) == 0 => ended(world, slot as u8),
            State::Live => is_empty = false,
            State::Missing => world.blocks[slot].state = State::Empty,
            _ => {}
        }
    }
    is_empty
}

pub(super) fn context(world: &mut World, step: &Step) -> bool {
    let code = match step.op {
        Op::CreateContext {
            slot,
            device,
            green,
        } => {
            let index = usize::from(slot);
            if world.contexts[index] != 0 {
                return false;
            }
            let (mut own, mut handle) = (0, 0);
            let code = if green {
                // The primary context must be there before: its end is the program's to bring
                // about.
                if world.contexts[usize::from(device)] == 0 {
                    return false;
                }
                // Which processors makes no difference to the stand-in; 1: with a default stream.
                let made = call!(world, green_create, &mut own, 1, device.into(), 1);
                world.seen.push(made);
                call!(world, green_context, &mut handle, own)
            } else {
                call!(world, ctx_create, &mut handle, 0, device.into())
            };
            if code == 0 {
                world.contexts[index] = handle;
                world.greens[index] = own;
                world.context_devices[index] = device;
            }
            code
        }
        Op::DestroyContext { slot } => {
            let handle = world.contexts[usize::from(slot)];
            if handle == 0 {
                return false;
            }
            let code = match world.greens[usize::from(slot)] {
                0 => call!(world, ctx_destroy, handle),
                green => call!(world, green_destroy, green),
            };
            if code == 0 {
                world.context_ended(slot);
            }
            code
        }
        Op::PushPop { slot } => {
            let handle = world.contexts[usize::from(slot)];
            if handle == 0 {
                return false;
            }
            let mut popped = 0;
            let code = call!(world, ctx_push, handle);
            let popping = call!(world, ctx_pop, &mut popped);
            world.seen.push(popping);
            world.seen.push(u64::from(popped == handle));
            code
        }
        Op::Retain { device } => {
            let mut handle = 0;
            let code = call!(world, primary_retain, &mut handle, device.into());
            if code == 0 {
                world.contexts[usize::from(device)] = handle;
                world.claims[usize::from(device)] += 1;
                if world.defaults[usize::from(device)] == 0 {
                    call!(
                        world,
                        default_pool,
                        &mut world.defaults[usize::from(device)],
                        device.into()
                    );
                }
            }
            code
        }
        Op::Release { device } => {
            let is_last = world.claims[usize::from(device)] == 1;
            if is_last && (world.has_green(device) || !drain(world, device)) {
                return false;
            }
            let code = call!(world, primary_release, device.into());
            if code == 0 {
                world.claims[usize::from(device)] -= 1;
                if world.claims[usize::from(device)] == 0
                    && world.contexts[usize::from(device)] != 0
                {
                    world.context_ended(device);
                }
            }
            code
        }
        Op::Reset { device } => {
            if world.has_green(device) || !drain(world, device) {
                return false;
            }
            let code = call!(world, primary_reset, device.into());
            if code == 0 && world.contexts[usize::from(device)] != 0 {
                world.context_ended(device);
            }
            code
        }
        Op::SyncContext => call!(world, ctx_sync),
        Op::AskContext => {
            let (mut handle, mut device) = (0, -1);
            let code = call!(world, ctx_get, &mut handle);
            let slot = world.slot_of(handle).map_or(99, u64::from);
            let asked = call!(world, ctx_device, &mut device);
            let (mut flags, mut active) = (0, 0);
            call!(world, primary_state, 0, &mut flags, &mut active);
            world
                .seen
                .extend([slot, asked, device as u32 as u64, active as u64]);
            code
        }
        Op::Peer { context, enable } => {
            let handle = world.contexts[usize::from(context)];
            if handle == 0 {
                return false;
            }
            match enable {
                true => call!(world, peer_enable, handle, 0),
                false => call!(world, peer_disable, handle),
            }
        }
        _ => return false,
    };
    world.seen.push(code);
    true
}

pub(super) fn stream(world: &mut World, step: &Step) -> bool {
    let code = match step.op {
        Op::CreateStream { slot, blocking } => {
            let index = usize::from(slot);
            if world.is_stream[index] {
                return false;
            }
            let Some(context) = world.current() else {
                return false;
            };
            let mut handle = 0;
            let code = match world.greens[usize::from(context)] {
                0 => call!(world, stream_create, &mut handle, u32::from(!blocking)),
                // Those of green contexts never order with the legacy stream.
                green => call!(world, green_stream, &mut handle, green, 1, 0),
            };
            if code == 0 {
                world.streams[index] = handle;
                world.is_stream[index] = true;
                world.stream_contexts[index] = context;
            }
            code
        }
        Op::DestroyStream { slot } => {
            let index = usize::from(slot);
            if !world.is_stream[index] {
                return false;
            }
            let code = call!(world, stream_destroy, world.streams[index]);
            if code == 0 {
                world.is_stream[index] = false;
                let handle = world.streams[index];
                world.captures.remove(&handle);
            }
            code
        }
        Op::SyncStream { stream } => through!(
            step,
            world,
            stream_sync,
            stream_sync_ptsz,
            world.handle(stream)
        ),
        Op::QueryStream { stream } => call!(world, stream_query, world.handle(stream)),
        Op::Order { from, to, context } => {
            let mut event = 0;
            // Without timing.
            let created = call!(world, event_create, &mut event, 2);
            world.seen.push(created);
            if created != 0 {
                return true;
            }
            let code = through!(
                step,
                world,
                event_record,
                event_record_ptsz,
                event,
                world.handle(from)
            );
            if context != AS_IS && world.contexts[usize::from(context)] != 0 {
                call!(world, ctx_set, world.contexts[usize::from(context)]);
            }
            let waited = through!(
                step,
                world,
                stream_wait,
                stream_wait_ptsz,
                world.handle(to),
                event,
                0
            );
            let destroyed = call!(world, event_destroy, event);
            world.seen.extend([waited, destroyed]);
            code
        }
        _ => return false,
    };
    world.seen.push(code);
    true
}
