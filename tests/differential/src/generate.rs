//! Generates programs from a seed: mostly correct, in part with deliberate errors.
//!
//! The state kept here of contexts, streams and blocks supposes that every call succeeds. After a
//! failed call, later steps find an empty slot.

use crate::op::*;
use crate::random::Random;

mod ask;
mod blocks;
mod contents;
mod contexts;
mod graphs;
mod pools;
mod threads;

/// Focus of a generated program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All operations, without a focus.
    Mixed,
    /// Contexts that come and go.
    Contexts,
    /// Captures that overlap, with other work beside them.
    Captures,
    /// Threads and streams that come and go.
    Churn,
    /// A device that is nearly full.
    Scarce,
    /// Questions about addresses, and calls that are wrong there.
    Addresses,
    /// Threads at once, and contexts that come and go beside them.
    Crowd,
    /// Descriptors that the program closes.
    Descriptors,
}

/// Parameters of generated programs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Focus of the generated programs.
    pub profile: Profile,
    pub devices: u8,
    /// Memory of each, in bytes.
    pub memory: u64,
    /// Steps of one program, about.
    pub steps: usize,
    /// True if threads allocate at the same moment.
    pub storms: bool,
}

#[derive(Clone, Copy)]
struct Context {
    device: u8,
    /// True for a green context, whose memory is in the device's primary context.
    green: bool,
}

#[derive(Clone, Copy)]
struct Made {
    context: u8,
}

/// Place of the last work on a block.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Last {
    stream: Stream,
    thread: u8,
    context: u8,
    per_thread: bool,
}

#[derive(Clone)]
struct Block {
    device: u8,
    context: u8,
    bytes: u64,
    is_async: bool,
    filled: bool,
    last: Option<Last>,
}

#[derive(Clone)]
struct Capture {
    on: Last,
    blocks: Vec<u8>,
    is_over: bool,
}

#[derive(Clone)]
struct Graph {
    context: u8,
    exec: bool,
    blocks: Vec<u8>,
    /// True if the memory that it writes is still allocated.
    is_fresh: bool,
}

struct Generator {
    random: Random,
    shape: Shape,
    steps: Vec<Step>,
    thread: u8,
    threads: [bool; THREADS],
    contexts: [Option<Context>; CONTEXTS],
    streams: [Option<Made>; STREAMS],
    blocks: Vec<Option<Block>>,
    freed: Vec<u8>,
    pools: [Option<u8>; POOLS],
    graphs: Vec<Option<Graph>>,
    captures: Vec<Capture>,
    hosts: [bool; HOSTS],
    held: Vec<u64>,
}

/// Generates the program of a seed.
pub fn program(seed: u64, shape: Shape) -> Vec<Step> {
    let mut generator = Generator {
        random: Random::new(seed),
        shape,
        steps: Vec::with_capacity(shape.steps + 64),
        thread: 0,
        threads: [false; THREADS],
        contexts: [None; CONTEXTS],
        streams: [None; STREAMS],
        blocks: vec![None; BLOCKS],
        freed: Vec::new(),
        pools: [None; POOLS],
        graphs: vec![None; GRAPHS],
        captures: Vec::new(),
        hosts: [false; HOSTS],
        held: vec![0; shape.devices.into()],
    };
    generator.threads[0] = true;
    // The primary context of the last device is made and ended beside threads.
    let is_crowd = shape.profile == Profile::Crowd;
    let last = if is_crowd {
        shape.devices.max(2) - 1
    } else {
        shape.devices
    };
    for device in 0..last {
        generator.retain(device);
    }
    while generator.steps.len() < shape.steps {
        generator.some();
    }
    generator.steps
}

type Make = fn(&mut Generator);

const PROFILES: usize = 8;

/// Operations with their weights in each profile, in the order of [`Profile`].
const WEIGHTS: &[([u16; PROFILES], Make)] = &[
    ([90, 60, 60, 20, 110, 70, 60, 60], Generator::allocate),
    ([90, 90, 90, 60, 90, 60, 40, 40], Generator::allocate_async),
    ([60, 40, 50, 20, 80, 50, 50, 40], Generator::free),
    ([60, 50, 60, 60, 70, 40, 30, 30], Generator::free_async),
    ([70, 60, 80, 30, 30, 60, 40, 40], Generator::fill),
    ([50, 50, 50, 20, 20, 50, 40, 40], Generator::read),
    ([20, 20, 20, 5, 5, 15, 5, 5], Generator::copy),
    ([10, 10, 10, 5, 3, 5, 2, 2], Generator::upload),
    ([20, 20, 30, 10, 5, 10, 10, 5], Generator::kernel),
    ([20, 20, 20, 60, 5, 15, 10, 10], Generator::create_stream),
    ([14, 16, 8, 55, 3, 8, 6, 6], Generator::destroy_stream),
    ([20, 10, 10, 20, 20, 15, 10, 10], Generator::sync_stream),
    ([10, 10, 10, 5, 3, 8, 5, 5], Generator::order),
    ([8, 10, 3, 6, 8, 8, 8, 8], Generator::sync_context),
    ([6, 40, 4, 20, 3, 8, 10, 4], Generator::create_context),
    ([4, 36, 2, 18, 2, 6, 6, 3], Generator::destroy_context),
    ([1, 6, 1, 0, 0, 1, 0, 0], Generator::primary),
    ([6, 8, 4, 3, 1, 4, 4, 2], Generator::context_misc),
    ([30, 20, 20, 6, 12, 60, 2, 5], Generator::ask),
    ([4, 4, 2, 1, 2, 20, 2, 20], Generator::export),
    ([5, 3, 2, 0, 1, 60, 0, 0], Generator::ask_strangely),
    ([1, 1, 1, 0, 1, 6, 1, 0], Generator::map_own),
    ([12, 8, 10, 3, 20, 4, 2, 2], Generator::ask_memory),
    ([8, 8, 8, 2, 2, 10, 2, 4], Generator::free_wrongly),
    ([4, 4, 2, 1, 2, 4, 2, 2], Generator::host),
    ([5, 5, 3, 3, 3, 4, 2, 2], Generator::make_pool),
    ([4, 4, 3, 3, 3, 3, 2, 2], Generator::destroy_pool),
    ([14, 10, 8, 3, 14, 6, 4, 4], Generator::pool_misc),
    ([6, 6, 2, 2, 1, 4, 2, 0], Generator::peer),
    ([12, 6, 50, 3, 6, 0, 0, 0], Generator::begin_capture),
    ([12, 6, 40, 3, 6, 0, 0, 0], Generator::end_capture),
    ([3, 2, 6, 1, 1, 0, 0, 0], Generator::exchange_mode),
    ([10, 6, 30, 2, 4, 0, 0, 0], Generator::launch),
    ([8, 4, 20, 2, 3, 0, 0, 0], Generator::destroy_graph),
    ([2, 1, 3, 0, 2, 1, 1, 1], Generator::trim_graphs),
    ([2, 2, 6, 0, 8, 1, 1, 1], Generator::probe),
    ([40, 20, 30, 200, 10, 20, 20, 20], Generator::change_thread),
    ([6, 4, 4, 150, 1, 4, 4, 4], Generator::end_thread),
    ([1, 0, 0, 0, 0, 0, 0, 1], Generator::fork),
    ([4, 8, 2, 1, 1, 1, 1, 1], Generator::pause),
    ([6, 1, 1, 1, 20, 0, 0, 0], Generator::storm),
    ([0, 0, 0, 0, 0, 0, 4, 0], Generator::crowd),
    ([0, 0, 0, 0, 0, 0, 0, 8], Generator::close_descriptors),
    ([1, 0, 0, 6, 0, 0, 0, 0], Generator::threads_in_turn),
];

impl Generator {
    fn some(&mut self) {
        let column = self.shape.profile as usize;
        let total: u64 = WEIGHTS
            .iter()
            .map(|(weights, _)| u64::from(weights[column]))
            .sum();
        let mut at = self.random.below(total);
        for (weights, make) in WEIGHTS {
            match at.checked_sub(weights[column].into()) {
                Some(rest) => at = rest,
                None => return make(self),
            }
        }
    }

    fn push(&mut self, context: u8, per_thread: bool, op: Op) {
        let thread = self.thread;
        self.steps.push(Step {
            thread,
            context,
            per_thread,
            op,
        });
    }

    /// The context that a step needs, or now and then the current one.
    fn at(&mut self, context: u8) -> u8 {
        if self.random.chance(20) {
            AS_IS
        } else {
            context
        }
    }

    fn some_context(&mut self) -> Option<u8> {
        let alive: Vec<u8> = (0..CONTEXTS as u8)
            .filter(|slot| self.contexts[usize::from(*slot)].is_some())
            .collect();
        self.random.pick(&alive)
    }

    fn device_of(&self, context: u8) -> u8 {
        self.contexts[usize::from(context)].map_or(0, |context| context.device)
    }

    fn some_device(&mut self) -> u8 {
        self.random.below(self.shape.devices.into()) as u8
    }

    /// A stream with the context it means and the door to come through.
    fn some_stream(&mut self) -> Option<Last> {
        let thread = self.thread;
        if self.random.chance(300) {
            let context = self.some_context()?;
            let per_thread = self.random.chance(500);
            let stream = match self.random.below(4) {
                0 | 1 => Stream::NULL,
                2 => Stream::LEGACY,
                _ => Stream::PER_THREAD,
            };
            return Some(Last {
                stream,
                thread,
                context,
                per_thread,
            });
        }
        let alive: Vec<u8> = (0..STREAMS as u8)
            .filter(|slot| self.streams[usize::from(*slot)].is_some())
            .collect();
        let slot = self.random.pick(&alive)?;
        let context = self.streams[usize::from(slot)]?.context;
        let per_thread = self.random.chance(200);
        Some(Last {
            stream: Stream(Stream::FIRST + slot),
            thread,
            context,
            per_thread,
        })
    }

    /// True if one stream runs the work of both places.
    fn is_same(a: Last, b: Last) -> bool {
        let key = |last: Last| match (last.stream, last.per_thread) {
            (Stream::NULL, true) | (Stream::PER_THREAD, _) => (2, last.thread, last.context),
            (Stream::NULL, false) | (Stream::LEGACY, _) => (1, 0, last.context),
            (stream, _) => (stream.0, 0, last.context),
        };
        key(a) == key(b)
    }

    fn capture_on(&self, on: Last) -> Option<usize> {
        self.captures
            .iter()
            .position(|capture| !capture.is_over && Self::is_same(capture.on, on))
    }

    fn is_capturing(&self) -> bool {
        self.captures.iter().any(|capture| !capture.is_over)
    }
}
