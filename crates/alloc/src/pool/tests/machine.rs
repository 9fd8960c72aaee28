//! Runs a program, which is correct by itself. It uses memory after the allocation and frees it
//! after the use, in stream order.

use super::graphs::{Capture, Graph};
use super::model::Model;
use super::program::{Action, Setting};
use crate::driver::Home;
use crate::handles::Context;
use crate::handles::Stream;
use crate::per_thread;
use crate::policy::{Policy, Reuse};
use crate::pool::{Backing, Pool, Settings};
use crate::sim::{Call, Clock, Error, Probe, Sim, Use, World};
use crate::types::Grant;
use std::collections::HashMap;
use std::sync::Arc;

/// The contexts: the first two on device 0, which the pools are for, and the last on device 1.
pub const CONTEXTS: [(Context, i32); 3] = [(Context(1), 0), (Context(2), 0), (Context(3), 1)];
/// The pool of `cudaMalloc`. Its blocks are for all streams of a context, and other pools' blocks
/// for one stream.
pub const OF_DEVICE: usize = 2;
/// Stands for the first pool, with requests for all streams of their context: that pool serves both
/// families.
pub const BOTH: usize = 3;

/// A block that the program holds.
pub struct Block {
    pub grant: Grant,
    pub pool: usize,
    pub stream: Stream,
    pub number: u64,
    /// Captures that were open when it was handed out.
    pub captures: Vec<u64>,
    /// Clocks of its allocation, and of all its use.
    pub allocated: Clock,
    pub after: Clock,
}

impl Block {
    /// True if it is for all streams of the context that it was allocated in.
    pub fn is_for_all(&self) -> bool {
        !self.stream.is_ordered()
    }

    pub fn whole(&self) -> Use {
        (self.grant.address, self.grant.size, self.number)
    }
}

/// A running program, and a naive model of the figures that the pools should report.
pub struct Machine {
    pub world: Arc<World>,
    pub probes: Vec<Probe>,
    pub models: Vec<Model>,
    pub setting: Setting,
    contexts: Vec<(Context, i32)>,
    pub streams: Vec<Stream>,
    pub live: Vec<Block>,
    pub captures: Vec<Capture>,
    pub graphs: Vec<Graph>,
    /// Captures that each block is kept for, by the number of the block.
    pub kept: HashMap<u64, Vec<u64>>,
    pub next: u64,
    /// Number of operations so far.
    pub done: u64,
}

/// The context of driver allocations.
pub const HOME: Home = Home {
    context: CONTEXTS[0].0,
    born: 0,
};

/// Returns the memory of pools under a policy.
pub fn backing(policy: Policy) -> Backing {
    match policy {
        Policy::Vmm => Backing::Pages,
        Policy::Blocks | Policy::Off => Backing::Whole(HOME),
    }
}

fn settings(setting: &Setting, max_size: u64) -> Settings {
    Settings {
        addresses: 1 << 41,
        backing: backing(setting.policy),
        page: setting.page,
        spare: setting.spare,
        piece: setting.piece,
        max_size,
        orders: setting.orders,
        waits: setting.waits,
        reuse: if setting.orders {
            Reuse::Order
        } else {
            Reuse::Wait
        },
    }
}

pub fn stream(context: Context, handle: u64) -> Stream {
    Stream {
        context,
        handle,
        thread: 0,
    }
}

/// Runs a program and returns the errors that the device found.
///
/// # Panics
/// If a pool's own figures or answers are wrong.
pub fn run(setting: &Setting, actions: &[Action], lie: Option<Call>) -> Vec<String> {
    let mut machine = Machine::new(setting);
    machine.sim().lie(lie);
    for action in actions {
        machine.act(action);
        if !machine.sim().findings().is_empty() {
            return machine.sim().findings();
        }
        machine.check();
    }
    machine.end()
}

impl Machine {
    pub fn new(setting: &Setting) -> Self {
        let max_sizes = [setting.max_size, 0, 0];
        let world = World {
            sim: Sim::new(setting.capacity, setting.limit),
            pools: (0..max_sizes.len())
                .map(|pool| Pool::new(0, settings(setting, max_sizes[pool])))
                .collect(),
        };
        let world = Arc::new(world);
        let probe = |number| Probe {
            number,
            world: Arc::downgrade(&world),
        };
        let two = setting.contexts > 1;
        let mut machine = Machine {
            probes: (0..max_sizes.len()).map(probe).collect(),
            models: max_sizes.map(Model::new).into(),
            world,
            contexts: CONTEXTS
                .iter()
                .copied()
                .filter(|(c, _)| two || c.0 != 2)
                .collect(),
            setting: setting.clone(),
            streams: Vec::new(),
            live: Vec::new(),
            captures: Vec::new(),
            graphs: Vec::new(),
            kept: HashMap::new(),
            next: 100,
            done: 0,
        };
        for (context, device) in machine.contexts.clone() {
            machine.sim().add_context(context, device);
            machine.add_stream(stream(context, Stream::LEGACY));
            machine.new_stream(context);
        }
        machine.new_stream(CONTEXTS[0].0);
        machine.sim().fail(setting.fail);
        machine
    }

    pub fn sim(&self) -> &Sim {
        &self.world.sim
    }

    pub fn pool(&self, pool: usize) -> &Pool<Probe> {
        &self.world.pools[pool]
    }

    /// Calls a function for each pool.
    pub fn each(&self, f: impl Fn(&Pool<Probe>, &Probe)) {
        self.world
            .pools
            .iter()
            .zip(&self.probes)
            .for_each(|(pool, probe)| f(pool, probe));
    }

    pub fn act(&mut self, action: &Action) {
        self.done += 1;
        if self.setting.threads > 0 {
            per_thread::have((self.done / 4 % self.setting.threads) as usize);
            // A tick may have ended the thread caches.
            self.each(|pool, _| pool.contend());
        }
        match *action {
            Action::Allocate {
                pool,
                stream,
                bytes,
                writes,
            } => {
                if let Some(stream) = self.stream(stream, |m, s| m.device(s) == 0) {
                    self.allocate(pool, stream, bytes, writes);
                }
            }
            Action::Free { block, on } => self.free_block(block, on),
            Action::FreeAnywhere { block, context } => {
                let context = self.context(context).0;
                if let Some(stream) = self.stream(0, |_, s| s.context == context)
                    && let Some(block) = self.take(block)
                {
                    let every = self::stream(context, Stream::ALL);
                    let for_all = block.is_for_all();
                    if !for_all {
                        self.sim().order_after(stream, &block.after);
                    }
                    self.free(block, (!for_all).then_some(every));
                }
            }
            Action::FreeTwice { pool } => self.free_twice(pool),
            Action::Launch { stream, blocks } => {
                // Often on a capturing stream, if there is one, so that it becomes a part of a
                // graph.
                let capture = self.captures.get(stream % 4).map(|capture| capture.stream);
                let stream = capture.unwrap_or(self.streams[stream % self.streams.len()]);
                self.launch(stream, &blocks);
            }
            Action::Order { stream, after } => {
                let (stream, after) = (
                    self.stream(stream, |_, _| true),
                    self.stream(after, |_, _| true),
                );
                if let (Some(stream), Some(after)) = (stream, after) {
                    self.sim().order_after(stream, &self.sim().now(after));
                }
            }
            Action::Step { stream, times } => (0..times).for_each(|_| self.sim().step(stream)),
            Action::NewStream { context } => self.new_stream(self.context(context).0),
            Action::EndStream { stream } => self.end_stream(stream),
            Action::Synchronize {
                stream,
                whole,
                meanwhile,
                fails,
            } => {
                if let Some(stream) = self.stream(stream, |_, _| true)
                    && (!whole || self.captures.is_empty())
                {
                    self.synchronize(stream, whole, meanwhile, fails);
                }
            }
            Action::Capture { stream } => self.capture(stream),
            Action::EndCapture { graph } => {
                if !self.captures.is_empty() {
                    self.end_capture(0, graph);
                }
            }
            Action::Derive { graph } => self.derive(graph),
            Action::Destroy { graph } => self.destroy(graph),
            Action::Replay { stream, graph } => self.replay(stream, graph),
            Action::Access { pool, on } => {
                let others: &[i32] = if on { &[1] } else { &[] };
                if on && pool == OF_DEVICE {
                    let near = self.contexts.iter().filter(|(_, device)| *device == 0);
                    near.for_each(|(owner, _)| self.sim().add_peer(*owner, CONTEXTS[2].0));
                }
                if on && self.setting.policy != Policy::Vmm {
                    self.sim().let_peers();
                }
                let result = self.pool(pool).set_access(&self.probes[pool], others);
                if let Err(error) = result {
                    self.expect(error);
                }
                self.models[pool].access = result.is_ok().then_some(on);
            }
            Action::Threshold { pool, bytes } => self.pool(pool).set_threshold(bytes),
            Action::Orders { pool, on } => self.pool(pool).set_orders(on),
            Action::Export { block } => {
                if let Some(block) = self.live.get(block % self.live.len().max(1)) {
                    let inside = block.grant.address + block.grant.requested / 2;
                    self.pool(block.pool).exported(inside);
                    // Pages of a live block stay in place; a registration ends with the free.
                    if !self.pool(block.pool).is_pages() {
                        self.sim().pin(block.grant.address, block.grant.size);
                    }
                }
            }
            Action::Trim { pool, keep } => {
                let before = self.sim().held(pool).0;
                let given = self.pool(pool).trim(&self.probes[pool], keep);
                let after = self.sim().held(pool).0;
                assert_eq!(given, before - after, "trim tells what it gave back");
            }
            Action::Decay => self.each(|pool, probe| {
                pool.decay(probe);
            }),
            Action::GiveComplete { pool, bytes } => {
                let (before, probe) = (self.sim().held(pool).0, &self.probes[pool]);
                let given = self
                    .pool(pool)
                    .give_complete(probe, bytes, crate::types::PATIENCE);
                let after = self.sim().held(pool).0;
                assert_eq!(given, before - after, "it tells what it gave back");
            }
            Action::ResetPeaks { pool } => {
                self.pool(pool).reset_peak_reserved();
                self.pool(pool).reset_peak_requested();
                self.sim().reset_peak(pool);
                self.models[pool].peaks_reset();
            }
            Action::EndContext { context } => self.end_context(self.context(context)),
            Action::Reopen { pool, max_size } => {
                let stats = self.pool(pool).stats();
                if stats.live + stats.reserved + stats.quarantined == 0 {
                    let settings = settings(&self.setting, max_size);
                    assert!(self.pool(pool).vacate(&self.probes[pool]));
                    self.pool(pool).reopen(settings);
                    self.sim().forget(pool);
                    self.models[pool] = Model::new(max_size);
                }
            }
        }
    }

    /// Checks that an error was asked for by the setting.
    pub fn expect(&self, error: Error) {
        let asked = self
            .setting
            .fail
            .is_some_and(|(_, _, asked)| asked == error);
        assert!(asked, "{error:?} out of nothing");
    }

    fn context(&self, n: usize) -> (Context, i32) {
        self.contexts[n % self.contexts.len()]
    }

    pub fn device(&self, stream: Stream) -> i32 {
        let own = CONTEXTS
            .iter()
            .find(|(context, _)| *context == stream.context);
        own.map_or(0, |(_, device)| *device)
    }

    fn is_capturing(&self, stream: Stream) -> bool {
        self.captures.iter().any(|capture| capture.stream == stream)
    }

    /// Finds the n-th stream that captures nothing and fulfils a condition.
    pub fn stream(&self, n: usize, is: impl Fn(&Self, Stream) -> bool) -> Option<Stream> {
        let fits = |s: &&Stream| !self.is_capturing(**s) && is(self, **s);
        let fitting: Vec<&Stream> = self.streams.iter().filter(fits).collect();
        fitting.get(n % fitting.len().max(1)).map(|s| **s)
    }

    pub fn add_stream(&mut self, stream: Stream) {
        self.streams.push(stream);
        self.sim().add_stream(stream);
    }

    /// Adds a stream with a handle that may have been another's.
    fn new_stream(&mut self, context: Context) {
        let taken = |handle: &u64| !self.streams.contains(&stream(context, *handle));
        let free = (16..20).find(taken);
        if self.done.is_multiple_of(3) && self.streams.len() < 10 {
            self.next += 1;
            self.add_stream(Stream {
                context,
                handle: Stream::PER_THREAD,
                thread: self.next,
            });
        } else if let Some(handle) = free {
            self.add_stream(stream(context, handle));
        }
    }

    fn end_stream(&mut self, n: usize) {
        let index = n % self.streams.len();
        let stream = self.streams[index];
        if stream.handle == Stream::LEGACY {
            return;
        }
        self.each(|pool, probe| match stream.thread {
            0 => pool.stream_gone(probe, stream),
            thread => pool.thread_gone(probe, thread),
        });
        self.streams.swap_remove(index);
        self.sim().end_stream(stream);
        if let Some(at) = self.captures.iter().position(|c| c.stream == stream) {
            self.end_capture(at, false);
        }
    }
}
