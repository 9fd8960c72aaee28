//! State of a running program: handles and addresses by slot, and the expected contents of memory.

use std::collections::{BTreeMap, HashMap};

use crate::api::{Api, Location, PoolProps};
use crate::judge::{Facts, Rules};
use crate::log::Native;
use crate::op::*;

/// Origin of a block, which determines its lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `cuMemAlloc` and `cuMemAllocPitch`: until its context ends.
    Context,
    /// A pool: until it is freed.
    Pool,
    /// A graph that is being captured: an address, until the capture ends.
    Graph,
}

/// State of a block's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Never used, or gone with its context.
    Empty,
    /// The block is allocated now.
    Live,
    /// Freed; the address is known still.
    Freed,
    /// Allocated natively, and refused here as promised.
    Missing,
}

/// The block that a slot holds.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub state: State,
    pub address: u64,
    /// Requested size in bytes.
    pub bytes: u64,
    /// Origin of the block, as a kind.
    pub kind: Kind,
    /// The slot of its context.
    pub context: u8,
    /// Device that has the block.
    pub device: u8,
    /// Value of each byte; 0 if it is not known.
    pub value: u8,
    /// Number of this allocation.
    pub serial: u64,
    /// The capture that it belongs to.
    pub capture: u64,
    /// It was freed on a stream: memory of a context goes only when the stream gets there.
    pub is_queued: bool,
}

/// Bytes of the smallest request that is served in few large pieces (`piece_size.rs`).
pub const VAST: u64 = 8 << 30;

/// Writes of a graph when it runs: slot, allocation, value.
pub type Effects = Vec<(u8, u64, u8)>;

/// A capture that has not ended.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// Mode of the capture (`CUstreamCaptureMode`).
    pub mode: u8,
    /// The thread that began it; [`GONE`] once that has ended.
    pub thread: u8,
    /// The slot of its stream's context.
    pub context: u8,
    /// Writes of the graph that is captured.
    pub effects: Effects,
    /// Memory of `cuMemAlloc` was served meanwhile that a capture forbids.
    pub keeps: bool,
}

/// Stands for a thread that has ended.
pub const GONE: u8 = 255;

/// Graph and executable graph of a slot.
#[derive(Clone, Default)]
pub struct Graph {
    /// Handle of the graph (`CUgraph`).
    pub graph: u64,
    /// Handle of the executable graph (`CUgraphExec`).
    pub exec: u64,
    /// Writes of the graph when it runs.
    pub effects: Effects,
}

/// State of a program and of its comparison.
pub struct World {
    /// Functions of the driver.
    pub api: &'static Api,
    pub devices: u8,
    /// Memory of each device, in bytes.
    pub memory: u64,
    /// Contexts' handles; 0 for none. A destroyed one's handle stays in `stale`.
    pub contexts: [u64; CONTEXTS],
    /// Handles of contexts that ended.
    pub stale: [u64; CONTEXTS],
    /// Device of each context slot.
    pub context_devices: [u8; CONTEXTS],
    /// `CUgreenCtx` of the contexts that are green ones; 0 for the others.
    pub greens: [u64; CONTEXTS],
    /// Claims on primary contexts.
    pub claims: Vec<u32>,
    /// Streams' handles, destroyed ones' too.
    pub streams: [u64; STREAMS],
    /// True if the stream is alive.
    pub is_stream: [bool; STREAMS],
    /// Slots of their contexts.
    pub stream_contexts: [u8; STREAMS],
    /// Blocks, by the number of their slot.
    pub blocks: Vec<Block>,
    /// Live memory by address: size and slot.
    pub live: BTreeMap<u64, (u64, u8)>,
    /// Pools' handles; 0 for none.
    pub pools: [u64; POOLS],
    /// Device of each pool slot.
    pub pool_devices: [u8; POOLS],
    /// Addresses that graphs were given in this program.
    pub of_graphs: Vec<std::ops::Range<u64>>,
    /// Handles of pools that may not grow beyond a size.
    pub capped: Vec<u64>,
    /// Handle of each device's default pool.
    pub defaults: Vec<u64>,
    /// Graphs, by the number of their slot.
    pub graphs: Vec<Graph>,
    /// Open captures by the key of their stream.
    pub captures: HashMap<u64, Capture>,
    /// Capture mode of each thread: the interaction of its calls with captures.
    pub modes: [u8; THREADS],
    /// Host memory: address, bytes, and slot of the context.
    pub hosts: [(u64, u32, u8); HOSTS],
    /// The thread that runs a step now.
    pub thread: u8,
    /// True if a release threshold was raised since the program began.
    pub raised: bool,
    /// True if a promised difference kept a block from one of the runs since the program began.
    pub has_diverged: bool,
    /// Set when a request of [`VAST`] bytes was served.
    pub was_vast: bool,
    /// Duration of an [`Op::Pause`], in microseconds.
    pub pause: u64,
    /// Observations of the step.
    pub seen: Vec<u64>,
    /// Observations of the native run in the same step.
    pub theirs: Vec<u64>,
    /// The native run, when this is the run under the shim.
    pub native: Option<Native>,
    /// The log of this run, when it is the native one.
    pub log: Vec<u64>,
    /// Rules of the comparison.
    pub rules: Rules,
    /// The first difference, in words.
    pub difference: Option<String>,
    /// Number of uses of each promise.
    pub promises: Vec<u64>,
    /// Number of steps carried out.
    pub steps: u64,
    /// Number of findings that only the native run had, without wrong frees. An error of the
    /// program may be found at a later step.
    pub owed: u64,
    /// Findings of the stand-in so far.
    pub findings: u64,
    serials: u64,
}

const NO_BLOCK: Block = Block {
    state: State::Empty,
    address: 0,
    bytes: 0,
    kind: Kind::Context,
    context: 0,
    device: 0,
    value: 0,
    serial: 0,
    capture: 0,
    is_queued: false,
};

impl World {
    /// Begins without blocks and streams.
    pub fn new(
        api: &'static Api,
        devices: u8,
        memory: u64,
        rules: Rules,
        native: Option<Native>,
    ) -> World {
        World {
            api,
            devices,
            memory,
            contexts: [0; CONTEXTS],
            greens: [0; CONTEXTS],
            stale: [0; CONTEXTS],
            context_devices: std::array::from_fn(|slot| slot.min(devices as usize - 1) as u8),
            claims: vec![0; devices.into()],
            streams: [0; STREAMS],
            is_stream: [false; STREAMS],
            stream_contexts: [0; STREAMS],
            blocks: vec![NO_BLOCK; BLOCKS],
            live: BTreeMap::new(),
            pools: [0; POOLS],
            pool_devices: [0; POOLS],
            of_graphs: Vec::new(),
            capped: Vec::new(),
            defaults: vec![0; devices.into()],
            graphs: vec![Graph::default(); GRAPHS],
            captures: HashMap::new(),
            modes: [0; THREADS],
            hosts: [(0, 0, 0); HOSTS],
            thread: 0,
            raised: false,
            has_diverged: false,
            was_vast: false,
            pause: 0,
            seen: Vec::new(),
            theirs: Vec::new(),
            native,
            log: Vec::new(),
            rules,
            difference: None,
            promises: vec![0; crate::promises::TABLE.len()],
            steps: 0,
            owed: 0,
            findings: 0,
            serials: 0,
        }
    }

    /// A number for a new allocation.
    pub fn serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// Handle of a stream slot.
    pub fn handle(&self, stream: Stream) -> u64 {
        match stream.slot().map(|slot| self.streams[slot]) {
            None => stream.0.into(),
            // No stream was ever made there: a handle that means none.
            Some(0) => 0x0d1f_0000_0000,
            Some(handle) => handle,
        }
    }

    /// The context that a stream runs in: its own, or the current one.
    pub fn context_of(&self, stream: Stream, current: u8) -> u8 {
        stream
            .slot()
            .map_or(current, |slot| self.stream_contexts[slot])
    }

    /// Key of a stream among captures.
    pub fn key(&self, stream: Stream, current: u8) -> u64 {
        match stream.slot() {
            Some(slot) => self.streams[slot],
            None => 1 << 63 | u64::from(self.thread) << 32 | u64::from(current),
        }
    }

    /// Handle of a pool, by its slot.
    pub fn pool(&self, pool: Pool) -> u64 {
        match pool {
            Pool::Default(device) => self.defaults[usize::from(device)],
            Pool::Made(slot) => self.pools[usize::from(slot)],
        }
    }

    /// The slot of the current context. None if the context has no slot.
    pub fn current(&self) -> Option<u8> {
        let mut handle = 0;
        // SAFETY: `handle` is ours to write.
        unsafe { (self.api.ctx_get)(&mut handle) };
        self.slot_of(handle)
    }

    /// The slot of a context's handle.
    pub fn slot_of(&self, handle: u64) -> Option<u8> {
        let found = self
            .contexts
            .iter()
            .position(|context| handle != 0 && *context == handle);
        found.map(|slot| slot as u8)
    }

    /// Ends a thread. Its captures stay open. Its default stream differs from the default stream of
    /// the next thread in its slot.
    pub fn thread_ended(&mut self, thread: u8) {
        for (key, mut capture) in std::mem::take(&mut self.captures) {
            let mut kept = key;
            if capture.thread == thread {
                capture.thread = GONE;
                if key >> 63 == 1 {
                    kept = key | self.serial() << 40;
                    let of_capture = self.blocks.iter_mut().filter(|block| block.capture == key);
                    of_capture.for_each(|block| block.capture = kept);
                }
            }
            self.captures.insert(kept, capture);
        }
    }

    /// True if an open capture forbids the thread calls that may synchronise.
    pub fn is_forbidden(&self) -> bool {
        let mode = self.modes[usize::from(self.thread)];
        self.captures.values().any(|capture| {
            let is_mine = capture.thread == self.thread;
            let is_minded = is_mine && capture.mode != 2;
            match mode {
                0 => is_minded || !is_mine && capture.mode == 0,
                1 => is_minded,
                _ => false,
            }
        })
    }

    /// True if a green context holds the primary context of a device.
    pub fn has_green(&self, device: u8) -> bool {
        let mut slots = self.greens.iter().zip(self.context_devices);
        slots.any(|(green, of)| *green != 0 && of == device)
    }

    /// Forgets all objects that end with a context.
    pub fn context_ended(&mut self, slot: u8) {
        if std::mem::take(&mut self.greens[usize::from(slot)]) != 0 {
            // Its memory is the primary context's.
            let device = self.context_devices[usize::from(slot)];
            let made_there = self.blocks.iter_mut().filter(|block| block.context == slot);
            made_there.for_each(|block| block.context = device);
        }
        self.captures.retain(|_, capture| capture.context != slot);
        self.stale[usize::from(slot)] = std::mem::take(&mut self.contexts[usize::from(slot)]);
        for index in 0..BLOCKS {
            let block = self.blocks[index];
            let is_held = matches!(block.state, State::Live | State::Missing);
            if is_held && block.context == slot && block.kind != Kind::Pool {
                self.live.remove(&block.address);
                self.blocks[index].state = State::Empty;
            }
        }
        for index in 0..STREAMS {
            if self.stream_contexts[index] == slot {
                self.is_stream[index] = false;
            }
        }
        for index in 0..HOSTS {
            if self.hosts[index].2 == slot {
                self.hosts[index] = (0, 0, 0);
            }
        }
    }

    /// Memory held on a device: requested bytes, and their highest possible cost.
    pub fn facts(&self, device: u8) -> Facts {
        let mut facts = Facts {
            raised: self.raised,
            has_diverged: self.has_diverged,
            was_vast: self.was_vast,
            ..Facts::default()
        };
        let of_device = |block: &&Block| block.device == device && block.kind != Kind::Graph;
        for block in self.blocks.iter().filter(of_device) {
            match block.state {
                State::Live => {
                    facts.held += block.bytes;
                    facts.extra += crate::judge::cost(block.bytes) - block.bytes;
                }
                State::Missing => facts.missing += block.bytes,
                _ => {}
            }
        }
        let lives = |graph: &Graph| graph.graph != 0 || graph.exec != 0;
        facts.captures = !self.captures.is_empty() || self.graphs.iter().any(lives);
        let hidden = |(key, capture): (&u64, &Capture)| {
            *key >> 63 == 1 && capture.keeps && ![GONE, self.thread].contains(&capture.thread)
        };
        let is_green = self.greens.iter().any(|green| *green != 0) && !self.captures.is_empty();
        facts.keeps = is_green || self.captures.iter().any(hidden);
        facts
    }

    /// Properties of a new pool.
    pub fn props(device: u8, max_size: u64) -> PoolProps {
        PoolProps {
            kind: 1,
            handles: 0,
            location: Location::device(device),
            security: 0,
            max_size: max_size as usize,
            rest: [0; 56],
        }
    }

    /// True if the memory overlaps live memory.
    pub fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.live.range(..address + bytes.max(1)).next_back();
        before.is_some_and(|(start, (size, _))| start + size.max(&1) > address)
    }
}
