//! One step: the call, and its observations.

use crate::judge::{self, OUT_OF_MEMORY, Verdict};
use crate::log;
use crate::op::*;
use crate::promises::{Promise, TABLE};
use crate::world::{Block, Capture, Effects, Kind, State, World};

/// Mark of a step that was left out: its slot holds nothing that the step could use.
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
        // SAFETY: what is pointed to lives until the call returns, and is of the size that the
        // driver expects.
        let code = unsafe { ($world.api.$name)($($arg),*) };
        code as u32 as u64
    }};
}

/// Calls the driver as [`call`] does, by the entry point that the step names.
macro_rules! through {
    ($step:expr, $world:expr, $name:ident, $ptsz:ident $(, $arg:expr)*) => {
        if $step.per_thread { call!($world, $ptsz $(, $arg)*) } else { call!($world, $name $(, $arg)*) }
    };
}
pub(crate) use call;

mod ask;
mod blocks;
mod contents;
mod contexts;
mod graphs;
mod mapping;
mod settle;

use ask::ask;
use blocks::{allocate, free, probe};
use contents::{contents, host};
use contexts::{context, stream};
use graphs::{graph, pool};
use settle::{break_captures, forgive, order_alike, settle};

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
    // The context becomes current nevertheless: later steps may leave it as it is.
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
    // Where the driver alone hands out memory, it hands out other memory after a refusal. Other
    // work may have used that memory before.
    let is_other = world.rules.is_off && world.has_diverged;
    let new = if is_other { new.min(theirs) } else { new };
    // Natively a wrong free is found, and here refused.
    let is_wrong = matches!(step.op, Op::FreeWrongly { .. });
    if !is_wrong && !left_out {
        world.owed += theirs.saturating_sub(new);
    }
    let late = new.saturating_sub(theirs).min(world.owed);
    world.owed -= late;
    let new = new - late;
    if let Some(last) = world.seen.last_mut() {
        *last = new;
    }
    // A step that one side left out cannot be compared, but nothing may be found there.
    let verdict = if is_comparable {
        let device = device_of(world, step);
        let facts = world.facts(device);
        let facts = before(world, step, facts);
        judge::judge(&step.op, &world.theirs, &world.seen, &facts, &world.rules)
    } else if new > 0 {
        Verdict::Different
    } else {
        // A step left out here may have been refused natively.
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

/// Facts as before an allocation, which is in the world already.
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
    if let Op::Crowd { .. } = step.op {
        facts.is_capped = (0..world.devices).any(|device| {
            let mut handle = 0;
            call!(world, current_pool, &mut handle, device.into());
            world.capped.contains(&handle)
        });
    }
    if let Op::Ask { block, .. } = step.op {
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

/// Returns the live block of a slot. A block that is live natively and was refused here is left
/// out.
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
        Op::Free { .. } | Op::FreeAsync { .. } | Op::FreeWrongly { .. } => free(world, step),
        Op::Fill { .. }
        | Op::Copy { .. }
        | Op::CopyPeer { .. }
        | Op::Upload { .. }
        | Op::Read { .. }
        | Op::Kernel { .. } => contents(world, step),
        Op::Ask { .. } | Op::AskMemory | Op::MapOwn { .. } => ask(world, step),
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
        Op::Crowd { .. } => crate::churn::crowd(world, step),
        Op::CloseDescriptors => crate::descriptors::close(world),
        Op::Fork { calls } => crate::crowd::fork(world, calls),
    }
}
