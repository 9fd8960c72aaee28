//! One step: the call, and what is seen of it.

use crate::judge::{self, OUT_OF_MEMORY, Verdict};
use crate::log;
use crate::op::*;
use crate::promises::{Promise, TABLE};
use crate::world::{Block, Capture, Effects, Kind, State, World};

/// What is seen of a step that was left out: its slot holds nothing that it could be about.
const SKIPPED: u64 = 0x5c1b_bed0;
/// Bytes that are filled at the beginning, the middle and the end of a large block.
const PATCH: u64 = 256;
/// Bytes that are read there.
const LOOK: usize = 64;
/// Blocks up to this many bytes may be filled wholly.
const WHOLE: u64 = 256 << 10;

/// Calls a function of the driver; its code.
macro_rules! call {
    ($world:expr, $name:ident $(, $arg:expr)*) => {{
        // SAFETY: what is pointed to lives until the call returns, and is of the size that the driver expects.
        let code = unsafe { ($world.api.$name)($($arg),*) };
        code as u32 as u64
    }};
}

/// As [`call`], by the door that the step names.
macro_rules! through {
    ($step:expr, $world:expr, $name:ident, $ptsz:ident $(, $arg:expr)*) => {
        if $step.per_thread { call!($world, $ptsz $(, $arg)*) } else { call!($world, $name $(, $arg)*) }
    };
}
pub(crate) use call;

/// Carries a step out, and logs it or compares it.
pub fn step(world: &mut World, index: usize, step: &Step) {
    world.seen.clear();
    world.thread = step.thread;
    world.steps += 1;
    let mut theirs = std::mem::take(&mut world.theirs);
    if let Some(native) = &mut world.native
        && !native.next(&mut theirs)
    {
        world.difference = Some("the native run ended before this one".to_owned());
        return;
    }
    let left_out = world.native.is_some() && theirs.first() == Some(&SKIPPED) && theirs.len() == 2;
    world.theirs = theirs;
    // The context becomes current all the same: later steps may leave it as it is.
    enter(world, step);
    let is_comparable = !left_out && run(world, step);
    let is_missing = |block: &Block| block.state == State::Missing;
    if !is_comparable && !left_out && world.blocks.iter().any(is_missing) {
        order_alike(world, step);
    }
    let findings = world.api.findings;
    // SAFETY: it takes nothing.
    let findings = unsafe { findings() } as u32 as u64;
    let new = findings - std::mem::replace(&mut world.findings, findings);
    if !is_comparable {
        world.seen.clear();
        world.seen.push(SKIPPED);
    }
    world.seen.push(new);
    if world.native.is_none() {
        log::add(&mut world.log, &world.seen);
        return;
    }
    let theirs = world.theirs.last().copied().unwrap_or(0);
    if theirs > 0 {
        forgive(world, step);
    }
    // Where the driver alone hands memory out, it is other memory after a refusal, which other work used before.
    let is_other = world.rules.is_off && world.has_diverged;
    let new = if is_other { new.min(theirs) } else { new };
    // Natively a wrong free is found, and here refused.
    let is_wrong = matches!(step.op, Op::FreeAgain { .. } | Op::FreeInside { .. });
    if !is_wrong && !left_out {
        world.owed += theirs.saturating_sub(new);
    }
    let late = new.saturating_sub(theirs).min(world.owed);
    world.owed -= late;
    let new = new - late;
    if let Some(last) = world.seen.last_mut() {
        *last = new;
    }
    // What was left out on one side cannot be compared, but nothing may be found there.
    let verdict = if is_comparable {
        let device = device_of(world, step);
        let facts = world.facts(device);
        let facts = before(world, step, facts);
        judge::judge(&step.op, &world.theirs, &world.seen, &facts, &world.rules)
    } else if new > 0 {
        Verdict::Different
    } else {
        // What was left out here may have been refused natively.
        if !left_out && matches!(world.theirs.first(), Some(900 | 906)) {
            break_captures(world, step);
        }
        Verdict::Same
    };
    match verdict {
        Verdict::Same => {}
        Verdict::Promised(promise) => {
            let row = TABLE.iter().position(|(other, _, _)| *other == promise);
            world.promises[row.unwrap_or(0)] += 1;
            settle(world, step, promise);
        }
        Verdict::Different => {
            let facts = world.facts(device_of(world, step));
            world.difference = Some(format!(
                "step {index}: {step:?}\n  natively {:?}\n  here     {:?}\n  {facts:?}",
                world.theirs, world.seen
            ));
        }
    }
}

/// A free under work that nothing orders before it is the program's fault, and found natively unless a capture forbids the
/// free. Here the memory is cached, and would be found when it goes back to the driver or is handed out again.
fn forgive(world: &World, step: &Step) {
    let (Op::Free { block } | Op::FreeAsync { block, .. }) = step.op else {
        return;
    };
    let block = &world.blocks[usize::from(block)];
    if block.state == State::Freed {
        call!(world, forgive, block.address, block.bytes);
    }
}

/// What was held before an allocation, which is in the world already.
fn before(world: &World, step: &Step, mut facts: judge::Facts) -> judge::Facts {
    if let Op::Allocate { block, .. } = step.op {
        let block = &world.blocks[usize::from(block)];
        facts.is_of_graph = block.kind == Kind::Graph;
        if block.state == State::Live && block.kind != Kind::Graph && world.seen.first() == Some(&0)
        {
            facts.held -= block.bytes;
            facts.extra -= judge::cost(block.bytes) - block.bytes;
        }
    }
    if let Op::Allocate { from, .. } = step.op
        && !world.capped.is_empty()
    {
        let mut handle = 0;
        match from {
            From::Pool(pool, _) => handle = world.pools[usize::from(pool)],
            From::Stream(_) => {
                let device = device_of(world, step);
                call!(world, current_pool, &mut handle, device.into());
            }
            _ => {}
        }
        facts.is_capped = world.capped.contains(&handle);
    }
    if let Op::AskRange { block, .. }
    | Op::AskAttribute { block, .. }
    | Op::AskAttributes { block, .. } = step.op
    {
        let block = &world.blocks[usize::from(block)];
        facts.block = if block.kind == Kind::Context {
            block.bytes
        } else {
            0
        };
    }
    facts
}

fn device_of(world: &World, step: &Step) -> u8 {
    let context = match step.op {
        Op::Allocate {
            from: From::Stream(stream) | From::Pool(_, stream),
            ..
        } => world.context_of(stream, step.context),
        _ => step.context,
    };
    let context = if context == AS_IS {
        world.current().unwrap_or(0)
    } else {
        context
    };
    world.context_devices[usize::from(context)]
}

/// A step on a block that was refused here: natively its work comes between other work, and may be waited for or
/// break captures. Here that is done without the block.
fn order_alike(world: &mut World, step: &Step) {
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

/// Breaks the captures that the same step has broken natively, by a call that does nothing else.
fn break_captures(world: &mut World, step: &Step) {
    let stream = match step.op {
        Op::Allocate {
            from: From::Stream(stream) | From::Pool(_, stream),
            ..
        }
        | Op::FreeAsync { stream, .. } => stream,
        Op::FreeAgain {
            stream: Some(stream),
            ..
        }
        | Op::FreeInside {
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

/// What succeeded here and natively did not is undone.
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

/// Frees what natively does not exist.
fn give_back(world: &mut World, slot: usize) {
    let block = world.blocks[slot];
    if block.state == State::Live && block.address != 0 {
        world.live.remove(&block.address);
        world.blocks[slot].state = State::Empty;
        // What is current may have ended.
        let mut current = 0;
        call!(world, ctx_get, &mut current);
        let any = world.contexts.iter().copied().find(|context| *context != 0);
        call!(world, ctx_set, any.unwrap_or(0));
        call!(world, free, block.address);
        call!(world, ctx_set, current);
    }
}

/// Brings both runs to the same state after a promised difference.
fn settle(world: &mut World, step: &Step, promise: Promise) {
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
            };
        }
        _ => {}
    }
}

/// Makes the step's context current.
fn enter(world: &mut World, step: &Step) {
    if step.context == AS_IS {
        return;
    }
    let slot = usize::from(step.context);
    let handle = match world.contexts[slot] {
        0 => world.stale[slot],
        handle => handle,
    };
    let code = call!(world, ctx_set, handle);
    if code != 0 {
        world.seen.push(code);
    }
}

fn is_capturing(world: &World, step: &Step, stream: Stream) -> bool {
    if world.captures.is_empty() {
        return false;
    }
    let mut status = 0;
    let code = through!(
        step,
        world,
        is_capturing,
        is_capturing_ptsz,
        world.handle(stream),
        &mut status
    );
    code == 0 && status == 1
}

/// The place of a stream's capture.
fn key(world: &World, stream: Stream) -> u64 {
    let current = world.current().unwrap_or(AS_IS);
    world.key(stream, current)
}

/// Offsets of the bytes that stand for all of a block.
fn patches(bytes: u64, most: u64) -> [(u64, u64); 3] {
    let length = bytes.min(most);
    [
        (0, length),
        ((bytes - length) / 2, length),
        (bytes - length, length),
    ]
}

/// Whether the slot holds a block; what natively holds one and here was refused is left out.
fn live(world: &World, slot: u8) -> Option<Block> {
    Some(world.blocks[usize::from(slot)]).filter(|block| block.state == State::Live)
}

fn ended(world: &mut World, slot: u8) {
    let block = &mut world.blocks[usize::from(slot)];
    block.state = State::Freed;
    let address = block.address;
    if world
        .live
        .get(&address)
        .is_some_and(|(_, owner)| *owner == slot)
    {
        world.live.remove(&address);
    }
}

/// A value that a block has from now on: when the graph runs, if the stream captures.
fn written(world: &mut World, stream: Stream, captured: bool, slot: u8, value: u8) {
    let serial = world.blocks[usize::from(slot)].serial;
    if captured {
        let key = key(world, stream);
        if let Some(capture) = world.captures.get_mut(&key) {
            capture.effects.push((slot, serial, value));
        }
    } else {
        world.blocks[usize::from(slot)].value = value;
    }
}

/// Carries it out. False if there is nothing to compare.
fn run(world: &mut World, step: &Step) -> bool {
    match step.op {
        Op::SetContext | Op::Pause | Op::EndThread { .. } => {
            if let Op::EndThread { thread } = step.op {
                world.modes[usize::from(thread)] = 0;
                world.thread_ended(thread);
            }
            if step.op == Op::Pause && world.pause > 0 && world.native.is_some() {
                std::thread::sleep(std::time::Duration::from_micros(world.pause));
            }
            true
        }
        Op::CreateContext { .. }
        | Op::DestroyContext { .. }
        | Op::PushPop { .. }
        | Op::Retain { .. }
        | Op::Release { .. }
        | Op::Reset { .. }
        | Op::SyncContext
        | Op::AskContext
        | Op::Peer { .. } => context(world, step),
        Op::CreateStream { .. }
        | Op::DestroyStream { .. }
        | Op::SyncStream { .. }
        | Op::QueryStream { .. }
        | Op::Order { .. } => stream(world, step),
        Op::Allocate { block, bytes, from } => allocate(world, step, block, bytes, from),
        Op::Free { .. } | Op::FreeAsync { .. } | Op::FreeAgain { .. } | Op::FreeInside { .. } => {
            free(world, step)
        }
        Op::Fill { .. }
        | Op::Copy { .. }
        | Op::CopyPeer { .. }
        | Op::Upload { .. }
        | Op::Read { .. }
        | Op::Kernel { .. } => contents(world, step),
        Op::AskRange { .. }
        | Op::AskAttribute { .. }
        | Op::AskAttributes { .. }
        | Op::AskMemory => ask(world, step),
        Op::HostAllocate { .. } | Op::HostFree { .. } => host(world, step),
        Op::CreatePool { .. }
        | Op::DestroyPool { .. }
        | Op::TrimPool { .. }
        | Op::SetPool { .. }
        | Op::AskPool { .. }
        | Op::ChoosePool { .. }
        | Op::PoolAccess { .. } => pool(world, step),
        Op::BeginCapture { .. }
        | Op::EndCapture { .. }
        | Op::ExchangeMode { .. }
        | Op::Instantiate { .. }
        | Op::Launch { .. }
        | Op::DestroyGraph { .. }
        | Op::TrimGraphs { .. } => graph(world, step),
        Op::Probe { async_ } => probe(world, step, async_),
        Op::Storm { threads, bytes } => crate::crowd::storm(world, step, threads, bytes.into()),
        Op::ThreadsInTurn { threads } => crate::crowd::threads_in_turn(world, step, threads),
        Op::Fork { calls } => crate::crowd::fork(world, calls),
    }
}

/// Frees the pools' blocks of a device, as no document says what becomes of them at the end of its primary
/// context. False if one is left.
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

fn context(world: &mut World, step: &Step) -> bool {
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
                // The primary context must be there before: its end is the program's to bring about.
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

fn stream(world: &mut World, step: &Step) -> bool {
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

/// The slot of the pool that an allocation names; 0 if it names none.
fn index_of(from: From) -> u8 {
    match from {
        From::Pool(pool, _) => pool,
        _ => 0,
    }
}

fn allocate(world: &mut World, step: &Step, slot: u8, bytes: u64, from: From) -> bool {
    const SMALL: u64 = 1 << 20;
    let index = usize::from(slot);
    if matches!(world.blocks[index].state, State::Live | State::Missing) {
        return false;
    }
    // What a capture forbids succeeds here, as promised. Natively there is no such memory; here a pool keeps it
    // until it is synchronised.
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
        };
        match kind {
            Kind::Graph => world.of_graphs.push(address..address + size.max(1)),
            _ => drop(world.live.insert(address, (size, slot))),
        }
    }
    let free = free_bytes(world);
    world.seen.push(free);
    true
}

/// Free bytes of the current device, as the driver or the shim counts them; of use natively only.
fn free_bytes(world: &World) -> u64 {
    if world.native.is_some() {
        return 0;
    }
    let (mut free, mut total) = (0, 0);
    call!(world, mem_info, &mut free, &mut total);
    free as u64
}

fn free(world: &mut World, step: &Step) -> bool {
    // The shim carries out what a capture forbids, as promised: from then on the two runs would hold different
    // blocks, and natively the capture would be broken by what the program does with them.
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
            }
            code
        }
        Op::FreeAgain { block, stream } => {
            let found = world.blocks[usize::from(block)];
            let of_graph = world
                .of_graphs
                .iter()
                .any(|range| range.contains(&found.address));
            let is_other = of_graph || world.overlaps(found.address, 1);
            if found.state != State::Freed || found.kind == Kind::Graph || is_other {
                return false;
            }
            match stream {
                Some(stream) => through!(
                    step,
                    world,
                    free_async,
                    free_async_ptsz,
                    found.address,
                    world.handle(stream)
                ),
                None => call!(world, free, found.address),
            }
        }
        Op::FreeInside {
            block,
            offset,
            stream,
        } => {
            let Some(found) = live(world, block) else {
                return false;
            };
            let address = found.address + u64::from(offset);
            if u64::from(offset) >= found.bytes || found.kind == Kind::Graph {
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

/// A free of what natively exists and here was refused: from then on both have nothing there.
fn missing_freed(world: &mut World, slot: u8) -> bool {
    let freed = world.theirs.len() >= 2 && world.theirs[world.theirs.len() - 2] == 0;
    let block = &mut world.blocks[usize::from(slot)];
    if block.state == State::Missing && freed {
        block.state = State::Empty;
    }
    false
}

/// Whether the work would be on a device that the block is not on: that needs access, which is not modelled here.
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

fn contents(world: &mut World, step: &Step) -> bool {
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
                // What a captured copy reads is known when it runs: nothing is known of its target.
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
            let code = call!(
                world,
                copy_peer_async,
                target.address,
                to_handle,
                source.address,
                from_handle,
                length as usize,
                handle
            );
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

fn inside(block: &Block, permille: u16) -> u64 {
    block.address + block.bytes * u64::from(permille) / 1000
}

fn ask(world: &mut World, step: &Step) -> bool {
    match step.op {
        Op::AskRange { block, permille } => {
            let Some(found) = live(world, block) else {
                return false;
            };
            let (mut base, mut size) = (0, 0);
            let code = call!(
                world,
                address_range,
                &mut base,
                &mut size,
                inside(&found, permille)
            );
            world
                .seen
                .extend([code, base.wrapping_sub(found.address), size as u64]);
            if code != 0 {
                world.seen.truncate(world.seen.len() - 2);
            }
        }
        Op::AskAttribute {
            block,
            permille,
            number,
        } => {
            let Some(found) = live(world, block).filter(|block| block.kind != Kind::Graph) else {
                return false;
            };
            let mut value = 0;
            let code = call!(
                world,
                pointer_attribute,
                &mut value,
                number.into(),
                inside(&found, permille)
            );
            let value = attribute(world, &found, number, value);
            world.seen.extend([code, if code == 0 { value } else { 0 }]);
        }
        Op::AskAttributes { block, permille } => {
            let Some(found) = live(world, block).filter(|block| block.kind != Kind::Graph) else {
                return false;
            };
            const NUMBERS: [i32; 6] = [2, 8, 9, 11, 12, 17];
            let mut values = [0u64; 6];
            let pointers = values.each_mut().map(std::ptr::from_mut);
            let code = call!(
                world,
                pointer_attributes,
                6,
                NUMBERS.as_ptr(),
                pointers.as_ptr(),
                inside(&found, permille)
            );
            world.seen.push(code);
            for (number, value) in NUMBERS.iter().zip(values) {
                let value = attribute(world, &found, *number as u8, value);
                world.seen.push(value);
            }
        }
        Op::AskMemory => {
            let (mut free, mut total) = (0, 0);
            let code = call!(world, mem_info, &mut free, &mut total);
            world.seen.extend([code, free as u64, total as u64]);
        }
        _ => return false,
    }
    true
}

/// An attribute in a form that both runs have in common: slots for handles, distances for addresses.
fn attribute(world: &World, block: &Block, number: u8, value: u64) -> u64 {
    match number {
        1 => match value {
            0 => 0,
            handle => 1 + world.slot_of(handle).map_or(98, u64::from),
        },
        3 | 4 | 11 => value.wrapping_sub(block.address),
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
                // Nothing says what the handle of a destroyed pool reads.
                _ => 0,
            }
        }
        _ => value,
    }
}

fn host(world: &mut World, step: &Step) -> bool {
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

fn pool(world: &mut World, step: &Step) -> bool {
    let handle = match step.op {
        Op::TrimPool { pool, .. }
        | Op::SetPool { pool, .. }
        | Op::AskPool { pool, .. }
        | Op::ChoosePool { pool, .. } => {
            let handle = world.pool(pool);
            if handle == 0 {
                return false;
            }
            handle
        }
        Op::DestroyPool { pool } | Op::PoolAccess { pool, .. } => {
            let handle = world.pools[usize::from(pool)];
            if handle == 0 {
                return false;
            }
            handle
        }
        _ => 0,
    };
    let code = match step.op {
        Op::CreatePool {
            pool,
            device,
            max_size,
        } => {
            if world.pools[usize::from(pool)] != 0 {
                return false;
            }
            let props = World::props(device, max_size);
            let mut made = 0;
            let code = call!(world, pool_create, &mut made, &props);
            if code == 0 {
                world.pools[usize::from(pool)] = made;
                world.pool_devices[usize::from(pool)] = device;
                if max_size > 0 {
                    world.capped.push(made);
                }
            }
            code
        }
        Op::DestroyPool { pool } => {
            let code = call!(world, pool_destroy, handle);
            if code == 0 {
                world.pools[usize::from(pool)] = 0;
            }
            code
        }
        Op::TrimPool { keep, .. } => call!(world, pool_trim, handle, keep as usize),
        Op::SetPool {
            attribute, value, ..
        } => {
            let mut value = value;
            world.raised |= attribute == 4 && value > 0;
            call!(world, pool_set, handle, attribute.into(), &mut value)
        }
        Op::AskPool { attribute, .. } => {
            let mut value = 0;
            let code = call!(world, pool_get, handle, attribute.into(), &mut value);
            world.seen.push(code);
            world.seen.push(if code == 0 { value } else { 0 });
            return true;
        }
        Op::ChoosePool { device, .. } => {
            let code = call!(world, choose_pool, device.into(), handle);
            let mut now = 0;
            let asked = call!(world, current_pool, &mut now, device.into());
            world.seen.extend([asked, u64::from(now == handle)]);
            code
        }
        Op::PoolAccess { device, flags, .. } => {
            let access = crate::api::Access {
                location: 1,
                device: device.into(),
                flags: flags.into(),
            };
            call!(world, pool_access, handle, &access, 1)
        }
        _ => return false,
    };
    world.seen.push(code);
    true
}

/// What belongs to a capture is over with it: addresses of graphs are not used outside of them here.
fn capture_over(world: &mut World, key: u64) -> Effects {
    for block in &mut world.blocks {
        if block.kind == Kind::Graph && block.capture == key && block.state == State::Live {
            block.state = State::Empty;
        }
    }
    world.captures.remove(&key).unwrap_or_default().effects
}

fn graph(world: &mut World, step: &Step) -> bool {
    let code = match step.op {
        Op::BeginCapture { stream, mode } => {
            let handle = world.handle(stream);
            let code = through!(
                step,
                world,
                capture_begin,
                capture_begin_ptsz,
                handle,
                mode.into()
            );
            if code == 0 {
                let key = key(world, stream);
                let context = world.current().unwrap_or(AS_IS);
                let capture = Capture {
                    mode,
                    thread: world.thread,
                    context: world.context_of(stream, context),
                    effects: Effects::new(),
                    keeps: false,
                };
                world.captures.insert(key, capture);
            }
            code
        }
        Op::EndCapture { stream, graph } => {
            let slot = usize::from(graph);
            if world.graphs[slot].graph != 0 {
                return false;
            }
            let key = key(world, stream);
            let (mut made, handle) = (0, world.handle(stream));
            let code = through!(
                step,
                world,
                capture_end,
                capture_end_ptsz,
                handle,
                &mut made
            );
            let mut status = 0;
            through!(
                step,
                world,
                is_capturing,
                is_capturing_ptsz,
                handle,
                &mut status
            );
            if status == 0 {
                let effects = capture_over(world, key);
                if code == 0 {
                    world.graphs[slot].graph = made;
                    world.graphs[slot].effects = effects;
                }
            }
            code
        }
        Op::ExchangeMode { mode } => {
            let mut mode = mode.into();
            let wanted: u32 = mode;
            let code = call!(world, exchange_mode, &mut mode);
            if code == 0 {
                world.modes[usize::from(world.thread)] = wanted as u8;
            }
            world.seen.push(mode.into());
            code
        }
        Op::Instantiate { graph, flags } => {
            let found = &world.graphs[usize::from(graph)];
            if found.graph == 0 || found.exec != 0 {
                return false;
            }
            let mut exec = 0;
            let code = call!(world, instantiate, &mut exec, found.graph, flags.into());
            if code == 0 {
                world.graphs[usize::from(graph)].exec = exec;
            }
            code
        }
        Op::Launch { graph, stream } => {
            let found = world.graphs[usize::from(graph)].clone();
            let fresh = found.effects.iter().all(|(slot, serial, _)| {
                let block = &world.blocks[usize::from(*slot)];
                block.serial == *serial && (block.state == State::Live || block.kind == Kind::Graph)
            });
            if found.exec == 0 || !fresh || is_capturing(world, step, stream) {
                return false;
            }
            let code = through!(
                step,
                world,
                launch,
                launch_ptsz,
                found.exec,
                world.handle(stream)
            );
            if code == 0 {
                for (slot, _, value) in found.effects {
                    world.blocks[usize::from(slot)].value = value;
                }
            }
            code
        }
        Op::DestroyGraph { graph, exec_only } => {
            let slot = usize::from(graph);
            let (found, exec) = (world.graphs[slot].graph, world.graphs[slot].exec);
            if found == 0 && exec == 0 {
                return false;
            }
            let mut code = 0;
            if exec != 0 {
                code = call!(world, exec_destroy, exec);
                world.graphs[slot].exec = 0;
            }
            if !exec_only && found != 0 {
                let destroyed = call!(world, graph_destroy, found);
                world.seen.push(destroyed);
                world.graphs[slot] = Default::default();
            }
            code
        }
        Op::TrimGraphs { device } => call!(world, graph_trim, device.into()),
        _ => return false,
    };
    world.seen.push(code);
    true
}

/// Asks for all that must be free whatever the policy, and gives it back.
fn probe(world: &mut World, step: &Step, async_: bool) -> bool {
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
    // What natively is live counts here as well.
    let missing: u64 = world
        .blocks
        .iter()
        .filter(|block| block.state == State::Missing && block.device == device)
        .map(|block| judge::cost(block.bytes))
        .sum();
    // A driver's pool keeps pieces of 32 MiB by its threshold; how many depends on where its blocks lie.
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
    world.seen.extend([code, freed, OUT_OF_MEMORY]);
    true
}
