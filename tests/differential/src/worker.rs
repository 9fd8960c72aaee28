//! A process that runs programs: natively it logs its observations, under the shim it compares
//! them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::api::Api;
use crate::generate::{Shape, program};
use crate::judge::Rules;
use crate::op::*;
use crate::steps::call;
use crate::world::{Graph, State, World};
use crate::{log, steps};

/// Work of one worker process.
#[derive(Clone, Debug)]
pub struct Task {
    /// Shape of the worker's programs.
    pub shape: Shape,
    /// The first program's seed.
    pub seed: u64,
    pub programs: u64,
    /// The log that is written (natively) or compared with.
    pub log: String,
    /// True in the run under the shim.
    pub compares: bool,
    /// Rules of the comparison.
    pub rules: Rules,
    /// Duration of an [`Op::Pause`], in microseconds.
    pub pause: u64,
    /// The steps that are kept of the one program, when it is being shortened.
    pub keep: Option<Vec<u32>>,
    /// True if each step is printed.
    pub is_loud: bool,
}

type Job = (Box<World>, Arc<Vec<Step>>, Range<usize>, bool);

/// A thread that runs steps of a program.
struct Member {
    to: Sender<Job>,
    from: Receiver<Box<World>>,
    handle: JoinHandle<()>,
}

impl Member {
    fn new() -> Member {
        let (to, jobs) = channel::<Job>();
        let (answers, from) = channel();
        let handle = std::thread::spawn(move || {
            while let Ok((mut world, program, range, loud)) = jobs.recv() {
                part(&mut world, &program, range, loud);
                if answers.send(world).is_err() {
                    return;
                }
            }
        });
        Member { to, from, handle }
    }

    fn end(self) {
        drop(self.to);
        let _ = self.handle.join();
    }
}

fn part(world: &mut World, program: &[Step], range: Range<usize>, loud: bool) {
    for index in range {
        if world.difference.is_some() {
            return;
        }
        steps::step(world, index, &program[index]);
        if loud {
            println!(
                "{index:5} {:?} -> {:x?} natively {:x?}",
                program[index], world.seen, world.theirs
            );
        }
    }
}

/// Runs one program: one thread at a time, each in its turn.
fn run(mut world: Box<World>, program: Vec<Step>, loud: bool) -> Option<Box<World>> {
    let program = Arc::new(program);
    let mut members: [Option<Member>; THREADS] = std::array::from_fn(|_| None);
    let (mut at, mut before) = (0, None);
    while at < program.len() && world.difference.is_none() {
        if at >= program.len() / 4 && before.is_none() {
            before = Some(resident());
        }
        let thread = usize::from(program[at].thread);
        let same = |step: &&Step| {
            usize::from(step.thread) == thread && !matches!(step.op, Op::EndThread { .. })
        };
        let length = program[at..].iter().take_while(same).count();
        if let Op::EndThread { thread } = program[at].op {
            if let Some(member) = members[usize::from(thread)].take() {
                member.end();
            }
            part(&mut world, &program, at..at + 1, loud);
            at += 1;
            continue;
        }
        let range = at..at + length;
        if thread == 0 {
            part(&mut world, &program, range, loud);
        } else {
            let member = members[thread].get_or_insert_with(Member::new);
            member.to.send((world, program.clone(), range, loud)).ok()?;
            world = member.from.recv().ok()?;
        }
        at += length;
    }
    members.into_iter().flatten().for_each(Member::end);
    if program.len() >= LONG && world.difference.is_none() {
        let growth = resident().saturating_sub(before.unwrap_or(0));
        if loud {
            println!("host memory grew by {growth} bytes in the last three quarters");
        }
        world.difference = grown(&mut world, growth, program.len());
    }
    Some(world)
}

/// Frees all live blocks. The code of each free must be the native one, or success.
fn free_all(world: &mut World) {
    for index in 0..BLOCKS {
        let block = world.blocks[index];
        let is_live = block.state == State::Live && block.kind != crate::world::Kind::Graph;
        let mut code = 0;
        if is_live {
            let own = world.contexts[usize::from(block.context)];
            let context = if own == 0 {
                world.contexts[usize::from(block.device)]
            } else {
                own
            };
            call!(world, ctx_set, context);
            call!(world, ctx_sync);
            code = call!(world, free, block.address);
        }
        world.blocks[index].state = State::Empty;
        let Some(native) = &mut world.native else {
            log::add(&mut world.log, &[code]);
            continue;
        };
        let mut theirs = Vec::new();
        let is_worse = native.next(&mut theirs) && code != 0 && code != theirs[0];
        if is_worse && world.difference.is_none() {
            world.difference = Some(format!(
                "the last free of block {index} gave {code}, natively {}: {block:?}",
                theirs[0]
            ));
        }
    }
}

/// Ends a program: all memory is freed, and free memory must be as much as natively.
fn finish(world: &mut World) {
    world.thread = 0;
    // A capture left open by a thread must not forbid this.
    let mut mode = 2;
    call!(world, exchange_mode, &mut mode);
    for graph in std::mem::replace(&mut world.graphs, vec![Graph::default(); GRAPHS]) {
        if graph.exec != 0 {
            call!(world, exec_destroy, graph.exec);
        }
        if graph.graph != 0 {
            call!(world, graph_destroy, graph.graph);
        }
    }
    for slot in 0..STREAMS {
        if world.is_stream[slot] {
            let mut graph = 0;
            if call!(world, capture_end, world.streams[slot], &mut graph) == 0 && graph != 0 {
                call!(world, graph_destroy, graph);
            }
        }
    }
    for context in world.contexts {
        call!(world, ctx_set, context);
        call!(world, ctx_sync);
    }
    free_all(world);
    world.live.clear();
    for slot in 0..STREAMS {
        if std::mem::take(&mut world.is_stream[slot]) {
            call!(world, stream_destroy, world.streams[slot]);
        }
    }
    for host in std::mem::take(&mut world.hosts) {
        if host.0 != 0 {
            call!(world, host_free, host.0);
        }
    }
    for slot in 0..POOLS {
        if world.pools[slot] != 0 {
            call!(world, pool_destroy, world.pools[slot]);
            world.pools[slot] = 0;
        }
    }
    for device in 0..world.devices {
        let pool = world.defaults[usize::from(device)];
        call!(world, choose_pool, device.into(), pool);
        for (attribute, value) in [(1, 1), (2, 1), (3, 1), (4, 0), (6, 0), (8, 0)] {
            let mut value: u64 = value;
            call!(world, pool_set, pool, attribute, &mut value);
        }
        call!(world, ctx_set, world.contexts[usize::from(device)]);
        call!(world, ctx_sync);
        call!(world, pool_trim, pool, 0);
        call!(world, graph_trim, device.into());
    }
    for slot in world.devices.into()..CONTEXTS {
        if world.contexts[slot] != 0 {
            call!(world, ctx_set, world.contexts[slot]);
            call!(world, ctx_sync);
            match std::mem::take(&mut world.greens[slot]) {
                0 => call!(world, ctx_destroy, world.contexts[slot]),
                green => call!(world, green_destroy, green),
            };
        }
        world.contexts[slot] = 0;
    }
    call!(world, ctx_set, 0);
    for device in 0..world.devices {
        for _ in 0..std::mem::take(&mut world.claims[usize::from(device)]) {
            call!(world, primary_release, device.into());
        }
        world.contexts[usize::from(device)] = 0;
    }
    let mut mode = 0;
    call!(world, exchange_mode, &mut mode);
    world.captures.clear();
    world.modes = [0; THREADS];
    world.raised = false;
    world.capped.clear();
    world.of_graphs.clear();
    let has_diverged = std::mem::take(&mut world.has_diverged);
    let is_other = world.rules.is_off && has_diverged || world.rules.orders_memory;
    world.owed = 0;
    for device in 0..world.devices {
        balance(world, device);
    }
    // SAFETY: it takes nothing.
    let findings = unsafe { (world.api.findings)() } as u32 as u64;
    let new = findings - std::mem::replace(&mut world.findings, findings);
    let mut theirs = Vec::new();
    match &mut world.native {
        None => log::add(&mut world.log, &[new]),
        Some(native) => {
            // An error is found once natively, and here for each page that is returned to the
            // driver.
            let is_more = native.next(&mut theirs) && new > 0 && theirs[0] == 0 && !is_other;
            if is_more && world.difference.is_none() {
                world.difference = Some(format!(
                    "findings of the stand-in at the end of the program: {new}, natively {}",
                    theirs[0]
                ));
            }
        }
    }
}

/// Free memory of a device when nothing is held.
fn balance(world: &mut World, device: u8) {
    const SLACK: u64 = 4 << 20;
    let (mut context, mut free, mut total) = (0, 0, 0);
    call!(world, primary_retain, &mut context, device.into());
    call!(world, ctx_set, context);
    call!(world, mem_info, &mut free, &mut total);
    call!(world, ctx_set, 0);
    call!(world, primary_release, device.into());
    let mut theirs = std::mem::take(&mut world.theirs);
    match &mut world.native {
        None => log::add(&mut world.log, &[free as u64]),
        Some(native) => {
            let total = world.rules.limit.map_or(u64::MAX, |limit| limit);
            if native.next(&mut theirs)
                && (free as u64) + SLACK < theirs[0].min(total)
                && world.difference.is_none()
            {
                world.difference = Some(format!(
                    "at the end of the program, everything given back: device {device} has {free} bytes free, natively {}",
                    theirs[0]
                ));
            }
        }
    }
    world.theirs = theirs;
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

/// Runs the task; the exit code: 0 no difference, 1 a difference, 3 it could not run.
pub fn work(task: &Task) -> i32 {
    let api: &'static Api = match Api::load() {
        Ok(api) => Box::leak(Box::new(api)),
        Err(error) => {
            println!("error {error}");
            return 3;
        }
    };
    // SAFETY: it takes a number.
    if unsafe { (api.init)(0) } != 0 {
        println!("error cuInit failed");
        return 3;
    }
    let native = match task.compares.then(|| log::read(&task.log)).transpose() {
        Ok(native) => native,
        Err(error) => {
            println!("error {}: {error}", task.log);
            return 3;
        }
    };
    let mut world = Box::new(World::new(
        api,
        task.shape.devices,
        task.shape.memory,
        task.rules,
        native,
    ));
    world.pause = task.pause;
    for index in 0..task.programs {
        let seed = task.seed + index;
        let mut program = program(seed, task.shape);
        if let Some(keep) = &task.keep {
            program = keep
                .iter()
                .filter_map(|index| program.get(*index as usize).copied())
                .collect();
        }
        let Some(mut after) = run(world, program, task.is_loud) else {
            println!("error a thread of program {seed} panicked");
            return 3;
        };
        if after.difference.is_none() {
            finish(&mut after);
        }
        if let Some(difference) = &after.difference {
            println!("difference {seed}\n{difference}");
            return 1;
        }
        world = after;
    }
    if !task.compares
        && let Err(error) = log::write(&task.log, &world.log)
    {
        println!("error {}: {error}", task.log);
        return 3;
    }
    crate::descriptors::watch_end(task.seed);
    let promises: Vec<String> = world.promises.iter().map(u64::to_string).collect();
    println!("done {} {}", world.steps, promises.join(" "));
    0
}

/// Programs of this many steps must not take ever more of the host's memory.
const LONG: usize = 5000;

/// Compares the host memory, in bytes, that a program took after its first quarter.
///
/// With the shim it must not be much more than natively.
fn grown(world: &mut World, growth: u64, steps: usize) -> Option<String> {
    // A pool has a table of 30 KB for each stream with free blocks there. Tables of streams without
    // free blocks are freed at the next decay. Without this, the pairs of some 60 streams and 8
    // pools took 10 MB in the last three quarters of 20,000 steps.
    const MOST: u64 = 10 << 20;
    let mut theirs = Vec::new();
    let Some(native) = &mut world.native else {
        log::add(&mut world.log, &[growth]);
        return None;
    };
    let is_more = native.next(&mut theirs) && growth > theirs[0] + MOST;
    is_more.then(|| format!("host memory grew by {growth} bytes in the last three quarters of {steps} steps, natively by {}", theirs[0]))
}

/// The cost of a block is never less than its size.
#[cfg(test)]
mod tests {
    use crate::judge::cost;

    #[test]
    fn a_block_costs_at_least_its_size() {
        for bytes in [0, 1, 4096, (1 << 20) + 1, 3 << 30] {
            assert!(cost(bytes) >= bytes);
        }
    }
}
