//! Brings both runs to the same state after a difference: one run repeats the other's refusals,
//! frees and broken captures.

use super::*;

/// Forgives a free under work that nothing orders before it.
///
/// This is an error of the program. Natively it is found unless a capture forbids the free. Here
/// the memory is cached: the error would be found when it is returned to the driver or handed out
/// again.
pub(super) fn forgive(world: &World, step: &Step) {
    let (Op::Free { block } | Op::FreeAsync { block, .. }) = step.op else {
        return;
    };
    let block = &world.blocks[usize::from(block)];
    if block.state == State::Freed {
        call!(world, forgive, block.address, block.bytes);
    }
}

/// Repeats the effect of a step on a block that was refused here.
///
/// Natively its work runs between other work, and may be waited for or break captures. Here this is
/// done without the block.
pub(super) fn order_alike(world: &mut World, step: &Step) {
    let breaks = [judge::CAPTURE_UNSUPPORTED, judge::CAPTURE_IMPLICIT];
    if breaks.iter().any(|code| world.theirs.contains(code)) {
        break_captures(world, step);
    }
    let stream = match step.op {
        Op::Fill { stream, .. }
        | Op::Upload { stream, .. }
        | Op::Kernel { stream, .. }
        | Op::Copy { stream, .. } => stream,
        Op::Read { .. } => Stream::LEGACY,
        _ => return,
    };
    if world.theirs.first() != Some(&0) {
        return;
    }
    let handle = match world.handle(stream) {
        0 if step.per_thread => 2,
        handle => handle,
    };
    call!(world, kernel, handle, 0, 0, std::ptr::null());
    if matches!(step.op, Op::Read { .. }) {
        // A copy waits without being a call that captures forbid.
        let mut mode = 2;
        call!(world, exchange_mode, &mut mode);
        call!(world, stream_sync, handle);
        call!(world, exchange_mode, &mut mode);
    }
}

/// Breaks the captures that the same step has broken natively, by a call without other effects.
pub(super) fn break_captures(world: &mut World, step: &Step) {
    let stream = match step.op {
        Op::Allocate {
            from: From::Stream(stream) | From::Pool(_, stream),
            ..
        }
        | Op::FreeAsync { stream, .. } => stream,
        Op::FreeWrongly {
            stream: Some(stream),
            ..
        } => stream,
        _ => Stream::LEGACY,
    };
    let (mut event, mut current) = (0, 0);
    // An event needs a context, and there may be none.
    call!(world, ctx_get, &mut current);
    if world.current().is_none() {
        let any = world.contexts.iter().copied().find(|context| *context != 0);
        call!(world, ctx_set, any.unwrap_or(0));
    }
    call!(world, event_create, &mut event, 2);
    if world.theirs.contains(&judge::CAPTURE_IMPLICIT) {
        through!(
            step,
            world,
            event_record,
            event_record_ptsz,
            event,
            world.handle(stream)
        );
    } else {
        call!(world, event_query, event);
    }
    call!(world, event_destroy, event);
    call!(world, ctx_set, current);
}

/// Undoes an operation that succeeded here and failed natively.
fn even_out(world: &mut World, step: &Step) {
    match step.op {
        // Freed here, and live natively until it is freed once more.
        Op::Free { block } | Op::FreeAsync { block, .. }
            if world.blocks[usize::from(block)].state == State::Freed =>
        {
            world.blocks[usize::from(block)].state = State::Missing;
        }
        Op::Allocate { block, .. } => give_back(world, usize::from(block)),
        _ => {}
    }
}

/// Frees a block that natively does not exist.
fn give_back(world: &mut World, slot: usize) {
    let block = world.blocks[slot];
    if block.state == State::Live && block.address != 0 {
        world.live.remove(&block.address);
        world.blocks[slot].state = State::Empty;
        free_anywhere(world, block.address);
    }
}

/// Frees the memory of a graph that ran only here.
fn give_graphs_back(world: &mut World) {
    let addresses: Vec<u64> = world.of_graphs.iter().map(|range| range.start).collect();
    for address in addresses {
        if !world.live.contains_key(&address) {
            free_anywhere(world, address);
        }
    }
}

/// Frees an address in any context: the current one may have ended.
fn free_anywhere(world: &mut World, address: u64) {
    let mut current = 0;
    call!(world, ctx_get, &mut current);
    let any = world.contexts.iter().copied().find(|context| *context != 0);
    call!(world, ctx_set, any.unwrap_or(0));
    call!(world, free, address);
    call!(world, ctx_set, current);
}

/// Brings both runs to the same state after a promised difference.
pub(super) fn settle(world: &mut World, step: &Step, promise: Promise) {
    world.has_diverged |= matches!(
        promise,
        Promise::Lawful | Promise::Served | Promise::Rounded | Promise::Limited | Promise::Kept
    );
    if promise == Promise::Lawful {
        let is_plain = matches!(
            step.op,
            Op::Probe { async_: false }
                | Op::Allocate {
                    from: From::Plain | From::Pitched(_),
                    ..
                }
        );
        if is_plain && world.seen.first() == Some(&0) {
            let open = world.captures.values_mut();
            open.for_each(|capture| capture.keeps = true);
        }
        break_captures(world, step);
        // Natively refused before anything was said of the work on the block.
        forgive(world, step);
        even_out(world, step);
        return;
    }
    if promise == Promise::Served && matches!(step.op, Op::Launch { .. }) {
        give_graphs_back(world);
    }
    let Op::Allocate { block, bytes, from } = step.op else {
        return;
    };
    let slot = usize::from(block);
    match promise {
        Promise::Served => give_back(world, slot),
        Promise::Rounded | Promise::Limited | Promise::Kept => {
            let device = device_of(world, step);
            let kind = if matches!(from, From::Plain | From::Pitched(_)) {
                Kind::Context
            } else {
                Kind::Pool
            };
            let context = if step.context == AS_IS {
                world.current().unwrap_or(0)
            } else {
                step.context
            };
            let serial = world.serial();
            world.blocks[slot] = Block {
                state: State::Missing,
                address: 0,
                bytes: from.takes(bytes),
                kind,
                context,
                device,
                value: 0,
                serial,
                capture: 0,
                is_queued: false,
            };
        }
        _ => {}
    }
}
