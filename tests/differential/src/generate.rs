//! Programs from a seed: mostly sensible, in part wrong on purpose. What is kept here of contexts, streams and
//! blocks supposes that every call succeeds; where one does not, later steps find an empty slot.

use crate::op::*;
use crate::random::Random;

/// What a program is mostly about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A bit of everything.
    Mixed,
    /// Contexts that come and go.
    Contexts,
    /// Captures that overlap, with other work beside them.
    Captures,
    /// Threads and streams that come and go.
    Churn,
    /// A device that is nearly full.
    Scarce,
}

/// What programs are made for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What they are about.
    pub profile: Profile,
    /// Number of devices.
    pub devices: u8,
    /// Memory of each, in bytes.
    pub memory: u64,
    /// Steps of one program, about.
    pub steps: usize,
    /// Whether threads allocate at once.
    pub storms: bool,
    /// Whether stream-ordered memory outlives the primary context.
    pub outlives: bool,
}

#[derive(Clone, Copy)]
struct Context {
    device: u8,
    /// A green one, whose memory is that of the device's primary context.
    green: bool,
}

#[derive(Clone, Copy)]
struct Made {
    context: u8,
}

/// Where work was last put on a block.
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
    /// What it writes is still there.
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

/// The program of a seed.
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
    for device in 0..shape.devices {
        generator.retain(device);
    }
    while generator.steps.len() < shape.steps {
        generator.some();
    }
    generator.steps
}

type Make = fn(&mut Generator);

/// Operations with their weights in each profile: mixed, contexts, captures, churn, scarce.
const WEIGHTS: &[([u16; 5], Make)] = &[
    ([90, 60, 60, 20, 110], Generator::allocate),
    ([90, 90, 90, 60, 90], Generator::allocate_async),
    ([60, 40, 50, 20, 80], Generator::free),
    ([60, 50, 60, 60, 70], Generator::free_async),
    ([70, 60, 80, 30, 30], Generator::fill),
    ([50, 50, 50, 20, 20], Generator::read),
    ([20, 20, 20, 5, 5], Generator::copy),
    ([10, 10, 10, 5, 3], Generator::upload),
    ([20, 20, 30, 10, 5], Generator::kernel),
    ([20, 20, 20, 60, 5], Generator::create_stream),
    ([14, 16, 8, 55, 3], Generator::destroy_stream),
    ([20, 10, 10, 20, 20], Generator::sync_stream),
    ([10, 10, 10, 5, 3], Generator::order),
    ([8, 10, 3, 6, 8], Generator::sync_context),
    ([6, 40, 4, 20, 3], Generator::create_context),
    ([4, 36, 2, 18, 2], Generator::destroy_context),
    ([1, 6, 1, 0, 0], Generator::primary),
    ([6, 8, 4, 3, 1], Generator::context_misc),
    ([20, 10, 10, 3, 8], Generator::ask_range),
    ([20, 10, 10, 3, 4], Generator::ask_attribute),
    ([12, 8, 10, 3, 20], Generator::ask_memory),
    ([8, 8, 8, 2, 2], Generator::free_wrongly),
    ([4, 4, 2, 1, 2], Generator::host),
    ([5, 5, 3, 3, 3], Generator::make_pool),
    ([4, 4, 3, 3, 3], Generator::destroy_pool),
    ([14, 10, 8, 3, 14], Generator::pool_misc),
    ([6, 6, 2, 2, 1], Generator::peer),
    ([12, 6, 50, 3, 6], Generator::begin_capture),
    ([12, 6, 40, 3, 6], Generator::end_capture),
    ([3, 2, 6, 1, 1], Generator::exchange_mode),
    ([10, 6, 30, 2, 4], Generator::launch),
    ([8, 4, 20, 2, 3], Generator::destroy_graph),
    ([2, 1, 3, 0, 2], Generator::trim_graphs),
    ([2, 2, 6, 0, 8], Generator::probe),
    ([40, 20, 30, 200, 10], Generator::change_thread),
    ([6, 4, 4, 150, 1], Generator::end_thread),
    ([1, 0, 0, 0, 0], Generator::fork),
    ([4, 8, 2, 1, 1], Generator::pause),
    ([6, 1, 1, 1, 20], Generator::storm),
    ([1, 0, 0, 6, 0], Generator::threads_in_turn),
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

    /// The context that a step needs, or now and then whatever is current.
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

    /// What two places in the order of work have in common is that one stream runs both.
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

    /// Puts what was done to a block before what is done on a stream now. False if it cannot be.
    fn order_before(&mut self, block: u8, on: Last) -> bool {
        let Some(last) = self.blocks[usize::from(block)]
            .as_ref()
            .and_then(|block| block.last)
        else {
            return true;
        };
        if Self::is_same(last, on) {
            return true;
        }
        if self.capture_on(last).is_some() {
            return false;
        }
        let into_capture = self.capture_on(on).is_some();
        let is_mine = last.stream.slot().is_some() || last.thread == self.thread;
        let is_capturing = self.is_capturing();
        if is_mine
            && !into_capture
            && last.per_thread == on.per_thread
            && (is_capturing || self.random.chance(400))
        {
            let (from, to, context) = (last.stream, on.stream, on.context);
            self.push(
                last.context,
                last.per_thread,
                Op::Order { from, to, context },
            );
            return true;
        }
        // A wait of the host may be refused while a stream captures.
        if is_capturing && !self.random.chance(30) {
            return false;
        }
        if last.stream.slot().is_some() {
            self.push(
                last.context,
                false,
                Op::SyncStream {
                    stream: last.stream,
                },
            );
        } else if self.contexts[usize::from(last.context)].is_some() {
            self.push(last.context, false, Op::SyncContext);
        }
        true
    }

    fn used(&mut self, block: u8, on: Last) {
        if let Some(block) = &mut self.blocks[usize::from(block)] {
            block.last = Some(on);
        }
    }

    fn free_slot(&mut self) -> Option<u8> {
        let most = if self.shape.profile == Profile::Scarce {
            24
        } else {
            BLOCKS
        };
        let empty: Vec<u8> = (0..most as u8)
            .filter(|slot| self.blocks[usize::from(*slot)].is_none())
            .collect();
        self.random.pick(&empty)
    }

    fn some_block(&mut self) -> Option<u8> {
        let live: Vec<u8> = (0..BLOCKS as u8)
            .filter(|slot| self.blocks[usize::from(*slot)].is_some())
            .collect();
        self.random.pick(&live)
    }

    fn size(&mut self) -> u64 {
        let scarce = self.shape.profile == Profile::Scarce;
        match self.random.below(20) {
            0 => 0,
            1..=5 => 1 + self.random.below(4096),
            6 => 1 << self.random.below(24),
            7..=11 => 1 + self.random.below(1 << 20),
            12..=17 => 1 + self.random.below(6 << 20),
            _ if scarce => 1 + self.random.below(self.shape.memory / 4),
            18 => 1 + self.random.below(64 << 20),
            _ => (1 + self.random.below(16)) << 21,
        }
    }

    fn enter(&mut self, slot: u8, block: Block) {
        self.held[usize::from(block.device)] += block.bytes;
        self.freed.retain(|freed| *freed != slot);
        self.blocks[usize::from(slot)] = Some(block);
    }

    fn leave(&mut self, slot: u8) {
        if let Some(block) = self.blocks[usize::from(slot)].take() {
            self.held[usize::from(block.device)] -= block.bytes;
            self.freed.push(slot);
        }
        let writes = |blocks: &[u8]| blocks.contains(&slot);
        for graph in self
            .graphs
            .iter_mut()
            .flatten()
            .filter(|graph| writes(&graph.blocks))
        {
            graph.is_fresh = false;
        }
    }

    fn is_in_graph(&self, slot: u8) -> bool {
        self.captures
            .iter()
            .any(|capture| capture.blocks.contains(&slot))
            || self
                .graphs
                .iter()
                .flatten()
                .any(|graph| graph.is_fresh && graph.blocks.contains(&slot))
    }

    /// Whether there is room for a request, so that only the profile that wants it runs out of memory.
    fn has_room(&mut self, device: u8, bytes: u64) -> bool {
        let most = match self.shape.profile {
            Profile::Scarce => self.shape.memory * 12 / 10,
            _ => self.shape.memory / 8,
        };
        self.held[usize::from(device)] + bytes <= most
    }

    fn allocate(&mut self) {
        let (Some(block), Some(context)) = (self.free_slot(), self.some_context()) else {
            return;
        };
        let bytes = self.size();
        let device = self.device_of(context);
        if !self.has_room(device, bytes) {
            return self.free();
        }
        let from = match self.random.below(8) {
            0 => From::Pitched(1 + self.random.below(5000) as u32),
            _ => From::Plain,
        };
        let at = self.at(context);
        self.push(at, false, Op::Allocate { block, bytes, from });
        self.enter(
            block,
            Block {
                device,
                context,
                bytes,
                is_async: false,
                filled: false,
                last: None,
            },
        );
        if self.random.chance(600) {
            self.fill_block(block);
        }
    }

    fn allocate_async(&mut self) {
        let (Some(block), Some(on)) = (self.free_slot(), self.some_stream()) else {
            return self.create_stream();
        };
        let bytes = self.size();
        let device = self.device_of(on.context);
        if !self.has_room(device, bytes) {
            return self.free_async();
        }
        let of_device: Vec<u8> = (0..POOLS as u8)
            .filter(|slot| self.pools[usize::from(*slot)] == Some(device))
            .collect();
        let from = match self.random.pick(&of_device) {
            Some(pool) if self.random.chance(400) => From::Pool(pool, on.stream),
            _ => From::Stream(on.stream),
        };
        let at = if on.stream.slot().is_some() {
            self.at(on.context)
        } else {
            on.context
        };
        self.push(at, on.per_thread, Op::Allocate { block, bytes, from });
        self.enter(
            block,
            Block {
                device,
                context: on.context,
                bytes,
                is_async: true,
                filled: false,
                last: Some(on),
            },
        );
        if self.random.chance(600) {
            self.fill_block(block);
        }
    }

    fn free(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        self.free_block(block);
    }

    fn free_block(&mut self, block: u8) {
        if self.is_in_graph(block) && !self.random.chance(100) {
            return;
        }
        let Some(found) = self.blocks[usize::from(block)].clone() else {
            return;
        };
        if found.filled && self.random.chance(400) {
            self.read_block(block);
        }
        // The free of a pool's block waits for nothing.
        if let Some(last) = found
            .last
            .filter(|last| found.is_async || last.context != found.context)
        {
            if self.is_capturing() && self.capture_on(last).is_some() {
                return;
            }
            self.wait_for(last);
        }
        let context = match self.random.below(10) {
            0 => self.some_context().unwrap_or(AS_IS),
            1 => AS_IS,
            _ => found.context,
        };
        self.push(context, false, Op::Free { block });
        self.leave(block);
    }

    fn free_async(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let Some(found) = self.blocks[usize::from(block)].clone() else {
            return;
        };
        if !found.is_async && !self.random.chance(150)
            || self.is_in_graph(block) && !self.random.chance(100)
        {
            return;
        }
        if found.filled && self.random.chance(400) {
            self.read_block(block);
        }
        let mut on = match found.last {
            Some(last) if self.random.chance(600) => last,
            _ => match self.some_stream() {
                Some(on) => on,
                None => return,
            },
        };
        if on.stream.slot().is_none() {
            on.thread = self.thread;
        }
        if self.capture_on(on).is_some() && !self.random.chance(100)
            || !self.order_before(block, on)
        {
            return;
        }
        let at = if on.stream.slot().is_some() {
            self.at(on.context)
        } else {
            on.context
        };
        self.push(
            at,
            on.per_thread,
            Op::FreeAsync {
                block,
                stream: on.stream,
            },
        );
        self.leave(block);
    }

    fn fill(&mut self) {
        if let Some(block) = self.some_block() {
            self.fill_block(block);
        }
    }

    fn stream_for(&mut self, block: u8) -> Option<Last> {
        let found = self.blocks[usize::from(block)].clone()?;
        let last = found
            .last
            .filter(|last| last.stream.slot().is_some() || last.thread == self.thread);
        let on = match last {
            Some(last) if self.random.chance(500) => last,
            _ => {
                let on = self.some_stream()?;
                if self.device_of(on.context) != found.device {
                    let (stream, per_thread) = (Stream::NULL, self.random.chance(500));
                    Last {
                        stream,
                        thread: self.thread,
                        context: found.context,
                        per_thread,
                    }
                } else {
                    on
                }
            }
        };
        self.contexts[usize::from(on.context)]?;
        self.order_before(block, on).then_some(on)
    }

    fn touched(&mut self, block: u8, on: Last) {
        if let Some(index) = self.capture_on(on) {
            self.captures[index].blocks.push(block);
        } else {
            self.used(block, on);
        }
    }

    fn fill_block(&mut self, block: u8) {
        let Some(on) = self.stream_for(block) else {
            return;
        };
        let (value, whole) = (1 + self.random.below(255) as u8, self.random.chance(60));
        self.push(
            on.context,
            on.per_thread,
            Op::Fill {
                block,
                value,
                stream: on.stream,
                whole,
            },
        );
        self.touched(block, on);
        if let Some(block) = &mut self.blocks[usize::from(block)] {
            block.filled = true;
        }
    }

    fn read(&mut self) {
        if let Some(block) = self.some_block() {
            self.read_block(block);
        }
    }

    fn read_block(&mut self, block: u8) {
        let Some(found) = self.blocks[usize::from(block)]
            .clone()
            .filter(|block| block.filled)
        else {
            return;
        };
        let on = Last {
            stream: Stream::LEGACY,
            thread: self.thread,
            context: found.context,
            per_thread: false,
        };
        if self.contexts[usize::from(found.context)].is_some() && self.order_before(block, on) {
            self.push(found.context, false, Op::Read { block });
            // The copy is over when the call is.
            if found.last.is_some_and(|last| !Self::is_same(last, on)) && self.random.chance(500) {
                self.used(block, on);
            }
        }
    }

    fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.some_block(), self.some_block()) else {
            return;
        };
        let known = |generator: &Self, slot: u8| generator.blocks[usize::from(slot)].clone();
        let (Some(source), Some(target)) = (known(self, from), known(self, to)) else {
            return;
        };
        if from == to || !source.filled {
            return;
        }
        let Some(on) = self.stream_for(to) else {
            return;
        };
        if !self.order_before(from, on) {
            return;
        }
        if source.device != target.device {
            let (from_context, to_context) = (source.context, target.context);
            self.push(
                on.context,
                false,
                Op::CopyPeer {
                    from,
                    to,
                    from_context,
                    to_context,
                    stream: on.stream,
                },
            );
            let on = Last {
                per_thread: false,
                ..on
            };
            self.touched(from, on);
            self.touched(to, on);
        } else {
            self.push(
                on.context,
                on.per_thread,
                Op::Copy {
                    from,
                    to,
                    stream: on.stream,
                },
            );
            self.touched(from, on);
            self.touched(to, on);
        }
    }

    fn upload(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let hosts: Vec<u8> = (0..HOSTS as u8)
            .filter(|slot| self.hosts[usize::from(*slot)])
            .collect();
        let Some(host) = self.random.pick(&hosts) else {
            return self.host();
        };
        if self.is_capturing() {
            return;
        }
        let Some(on) = self.stream_for(block) else {
            return;
        };
        // The host's bytes are used by one copy at a time.
        self.push(on.context, false, Op::SyncContext);
        let value = 1 + self.random.below(255) as u8;
        let on = Last {
            per_thread: false,
            ..on
        };
        self.push(
            on.context,
            false,
            Op::Upload {
                block,
                value,
                host,
                stream: on.stream,
            },
        );
        self.push(on.context, false, Op::SyncContext);
        self.used(block, on);
    }

    fn kernel(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let Some(on) = self.stream_for(block) else {
            return;
        };
        // The stand-in's own door knows no per-thread default stream.
        if on.stream == Stream::NULL && on.per_thread {
            return;
        }
        let writes = self.random.chance(500);
        self.push(
            on.context,
            false,
            Op::Kernel {
                block,
                stream: on.stream,
                writes,
            },
        );
        self.touched(block, on);
    }

    fn create_stream(&mut self) {
        let empty: Vec<u8> = (0..STREAMS as u8)
            .filter(|slot| self.streams[usize::from(*slot)].is_none())
            .collect();
        let (Some(slot), Some(context)) = (self.random.pick(&empty), self.some_context()) else {
            return;
        };
        let blocking = self.random.chance(300);
        self.push(context, false, Op::CreateStream { slot, blocking });
        self.streams[usize::from(slot)] = Some(Made { context });
    }

    fn destroy_stream(&mut self) {
        let slot = self.random.index(STREAMS);
        let Some(made) = self.streams[slot] else {
            return;
        };
        let on = Last {
            stream: Stream(Stream::FIRST + slot as u8),
            thread: self.thread,
            context: made.context,
            per_thread: false,
        };
        let capturing = self.capture_on(on);
        if capturing.is_some() && !self.random.chance(50) {
            return;
        }
        if self.random.chance(700) && capturing.is_none() {
            self.push(made.context, false, Op::SyncStream { stream: on.stream });
        }
        let at = self.at(made.context);
        self.push(at, false, Op::DestroyStream { slot: slot as u8 });
        self.streams[slot] = None;
        if let Some(index) = capturing {
            self.captures[index].is_over = true;
        }
        // What it did is done, or else ordered by the context alone.
        let legacy = Last {
            stream: Stream::LEGACY,
            ..on
        };
        for block in self.blocks.iter_mut().flatten() {
            if block.last.is_some_and(|last| last.stream == on.stream) {
                block.last = Some(legacy);
            }
        }
        if !self.is_capturing() {
            self.push(made.context, false, Op::SyncContext);
        }
    }

    fn sync_stream(&mut self) {
        let Some(on) = self.some_stream() else { return };
        if self.capture_on(on).is_some() && !self.random.chance(40) {
            return;
        }
        let stream = on.stream;
        let op = if self.random.chance(800) {
            Op::SyncStream { stream }
        } else {
            Op::QueryStream { stream }
        };
        self.push(on.context, on.per_thread, op);
    }

    fn order(&mut self) {
        let (Some(a), Some(b)) = (self.some_stream(), self.some_stream()) else {
            return;
        };
        // An event of a capture pulls the other stream in: that is for captures' own steps.
        if a.per_thread == b.per_thread
            && self.capture_on(a).is_none()
            && self.capture_on(b).is_none()
        {
            self.push(
                a.context,
                a.per_thread,
                Op::Order {
                    from: a.stream,
                    to: b.stream,
                    context: b.context,
                },
            );
        }
    }

    fn sync_context(&mut self) {
        if self.is_capturing() && !self.random.chance(50) {
            return;
        }
        if let Some(context) = self.some_context() {
            self.push(context, false, Op::SyncContext);
        }
    }

    fn create_context(&mut self) {
        let first = usize::from(self.shape.devices);
        let empty: Vec<usize> = (first..CONTEXTS)
            .filter(|slot| self.contexts[*slot].is_none())
            .collect();
        let Some(slot) = self.random.pick(&empty) else {
            return;
        };
        let device = self.some_device();
        let green = self.contexts[usize::from(device)].is_some() && self.random.chance(250);
        self.push(
            AS_IS,
            false,
            Op::CreateContext {
                slot: slot as u8,
                device,
                green,
            },
        );
        self.contexts[slot] = Some(Context { device, green });
    }

    /// A context ends with its own memory and its streams; pools' blocks live on, and those of green contexts.
    fn context_ends(&mut self, slot: u8) {
        let device = self.device_of(slot);
        let green = self.contexts[usize::from(slot)].is_some_and(|context| context.green);
        self.contexts[usize::from(slot)] = None;
        for index in 0..STREAMS {
            if self.streams[index].is_some_and(|made| made.context == slot) {
                self.streams[index] = None;
            }
        }
        for capture in &mut self.captures {
            capture.is_over |= capture.on.context == slot;
        }
        let primary = (0..CONTEXTS as u8)
            .find(|other| self.contexts[usize::from(*other)].is_some_and(|c| c.device == device));
        for index in 0..BLOCKS as u8 {
            let Some(block) = &mut self.blocks[usize::from(index)] else {
                continue;
            };
            if block.last.is_some_and(|last| last.context == slot) {
                block.last = None;
            }
            if block.context != slot {
                continue;
            }
            match primary {
                Some(primary) if block.is_async || green => block.context = primary,
                _ => self.leave(index),
            }
        }
        for graph in self
            .graphs
            .iter_mut()
            .flatten()
            .filter(|graph| graph.context == slot)
        {
            graph.is_fresh = false;
        }
    }

    /// Waits for a context's work as far as a capture lets it.
    fn settle(&mut self, slot: u8) {
        self.push(slot, false, Op::SyncContext);
    }

    /// The host waits for what was last done to a block.
    fn wait_for(&mut self, last: Last) {
        if last.stream.slot().is_some() {
            let stream = last.stream;
            self.push(last.context, false, Op::SyncStream { stream });
        } else {
            self.push(last.context, false, Op::SyncContext);
        }
    }

    /// What other contexts last did to the blocks that end with a context. `None`: a capture stands in the way of
    /// waiting for it.
    fn work_on_blocks_of(&self, slot: u8) -> Option<Vec<Last>> {
        let in_primary = slot < self.shape.devices && !self.shape.outlives;
        let goes = |block: &&Block| match block.is_async {
            true => in_primary && block.device == slot,
            false => block.context == slot,
        };
        let others = |last: &Last| {
            last.context != slot && self.contexts[usize::from(last.context)].is_some()
        };
        let blocks = self.blocks.iter().flatten().filter(goes);
        let work: Vec<Last> = blocks
            .filter_map(|block| block.last)
            .filter(others)
            .collect();
        // One of the whole context, or of another thread, may forbid to wait, too.
        (work.is_empty() || !self.is_capturing()).then_some(work)
    }

    fn destroy_context(&mut self) {
        let first = self.shape.devices;
        let alive: Vec<u8> = (first..CONTEXTS as u8)
            .filter(|slot| self.contexts[usize::from(*slot)].is_some())
            .collect();
        let Some(slot) = self.random.pick(&alive) else {
            return;
        };
        let captures = self
            .captures
            .iter()
            .any(|capture| !capture.is_over && capture.on.context == slot);
        if captures && !self.random.chance(100) {
            return;
        }
        let Some(work) = self.work_on_blocks_of(slot) else {
            return;
        };
        if !captures {
            self.settle(slot);
        }
        work.into_iter().for_each(|last| self.wait_for(last));
        let at = if self.random.chance(500) {
            slot
        } else {
            self.some_context().unwrap_or(AS_IS)
        };
        self.push(at, false, Op::DestroyContext { slot });
        self.context_ends(slot);
    }

    fn retain(&mut self, device: u8) {
        self.push(AS_IS, false, Op::Retain { device });
        self.contexts[usize::from(device)] = Some(Context {
            device,
            green: false,
        });
        self.push(device, false, Op::SetContext);
    }

    /// The primary context is reset or released and made anew; pools' blocks of the device go before if they
    /// cannot outlive it.
    fn primary(&mut self) {
        let device = self.some_device();
        let open = self.captures.iter().any(|capture| !capture.is_over);
        let mut contexts = self.contexts.iter().flatten();
        let is_held = contexts.any(|context| context.green && context.device == device);
        if open || is_held {
            return;
        }
        if self.random.chance(200) {
            // A claim more, and one less: nothing ends.
            self.push(AS_IS, false, Op::Retain { device });
            self.push(AS_IS, false, Op::Release { device });
            return;
        }
        for context in 0..CONTEXTS as u8 {
            if self.contexts[usize::from(context)].is_some_and(|context| context.device == device) {
                self.settle(context);
            }
        }
        let work = self.work_on_blocks_of(device).unwrap_or_default();
        work.into_iter().for_each(|last| self.wait_for(last));
        for block in 0..BLOCKS as u8 {
            let Some(found) = self.blocks[usize::from(block)].clone() else {
                continue;
            };
            if found.device == device && found.is_async && !self.shape.outlives {
                self.push(found.context, false, Op::Free { block });
                self.leave(block);
            }
        }
        if self.random.chance(500) {
            self.push(device, false, Op::Reset { device });
            self.context_ends(device);
            if self.random.chance(500) {
                // Wrong: the context is gone.
                self.push(device, false, Op::AskMemory);
            }
            self.push(AS_IS, false, Op::Release { device });
        } else {
            self.push(AS_IS, false, Op::Release { device });
            self.context_ends(device);
        }
        self.retain(device);
    }

    fn context_misc(&mut self) {
        let Some(slot) = self.some_context() else {
            return;
        };
        let op = match self.random.below(3) {
            0 => Op::PushPop { slot },
            1 => Op::AskContext,
            _ => Op::SetContext,
        };
        let at = self.at(slot);
        self.push(at, false, op);
    }

    fn permille(&mut self) -> u16 {
        self.random.pick(&[0, 0, 1, 500, 999]).unwrap_or(0)
    }

    fn ask_range(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let context = self.blocks[usize::from(block)]
            .as_ref()
            .map_or(AS_IS, |block| block.context);
        let (at, permille) = (self.at(context), self.permille());
        self.push(at, false, Op::AskRange { block, permille });
    }

    fn ask_attribute(&mut self) {
        let Some(block) = self.some_block() else {
            return;
        };
        let context = self.blocks[usize::from(block)]
            .as_ref()
            .map_or(AS_IS, |block| block.context);
        let (at, permille) = (self.at(context), self.permille());
        let number = 1 + self.random.below(20) as u8;
        let op = if self.random.chance(300) {
            Op::AskAttributes { block, permille }
        } else {
            Op::AskAttribute {
                block,
                permille,
                number,
            }
        };
        self.push(at, false, op);
    }

    fn ask_memory(&mut self) {
        if let Some(context) = self.some_context() {
            self.push(context, false, Op::AskMemory);
        }
    }

    fn free_wrongly(&mut self) {
        let stream = match self.random.below(3) {
            0 => None,
            _ => match self.some_stream() {
                Some(on) if self.capture_on(on).is_none() => Some(on.stream),
                _ => None,
            },
        };
        let context = self.some_context().unwrap_or(AS_IS);
        if self.random.chance(500) {
            let Some(block) = self.random.pick(&self.freed.clone()) else {
                return;
            };
            self.push(context, false, Op::FreeAgain { block, stream });
        } else {
            let Some(block) = self.some_block() else {
                return;
            };
            let offset = self.random.pick(&[1, 256, 512, 4096, 1 << 20]).unwrap_or(1);
            self.push(
                context,
                false,
                Op::FreeInside {
                    block,
                    offset,
                    stream,
                },
            );
        }
    }

    fn host(&mut self) {
        let host = self.random.below(HOSTS as u64) as u8;
        let Some(context) = self.some_context() else {
            return;
        };
        // It ends with its context: only a primary one's is of use.
        let context = self.device_of(context);
        if self.contexts[usize::from(context)].is_none() {
            return;
        }
        if self.hosts[usize::from(host)] {
            if !self.is_capturing() {
                self.push(context, false, Op::SyncContext);
            }
            self.push(context, false, Op::HostFree { host });
        } else {
            let bytes = 1 + self.random.below(100_000) as u32;
            self.push(context, false, Op::HostAllocate { host, bytes });
        }
        self.hosts[usize::from(host)] ^= true;
    }

    fn make_pool(&mut self) {
        let Some(pool) = (0..POOLS).find(|slot| self.pools[*slot].is_none()) else {
            return;
        };
        let device = self.some_device();
        let max_size = if self.random.chance(200) {
            (1 + self.random.below(8)) << 25
        } else {
            0
        };
        self.push(
            AS_IS,
            false,
            Op::CreatePool {
                pool: pool as u8,
                device,
                max_size,
            },
        );
        self.pools[pool] = Some(device);
    }

    fn destroy_pool(&mut self) {
        let pool = self.random.index(POOLS);
        if self.pools[pool].take().is_some() {
            self.push(AS_IS, false, Op::DestroyPool { pool: pool as u8 });
        }
    }

    fn some_pool(&mut self) -> Pool {
        let made: Vec<u8> = (0..POOLS as u8)
            .filter(|slot| self.pools[usize::from(*slot)].is_some())
            .collect();
        match self.random.pick(&made) {
            Some(pool) if self.random.chance(600) => Pool::Made(pool),
            _ => Pool::Default(self.some_device()),
        }
    }

    fn pool_misc(&mut self) {
        let pool = self.some_pool();
        let op = match self.random.below(10) {
            0 | 1 => Op::TrimPool {
                pool,
                keep: self
                    .random
                    .pick(&[0, 0, 1 << 20, 64 << 20, u64::MAX])
                    .unwrap_or(0),
            },
            2 | 3 => {
                let value = self.random.pick(&[0, 0, u64::MAX, 64 << 20]).unwrap_or(0);
                Op::SetPool {
                    pool,
                    attribute: 4,
                    value,
                }
            }
            4 => {
                let (attribute, value) = (1 + self.random.below(3) as u8, self.random.below(2));
                Op::SetPool {
                    pool,
                    attribute,
                    value,
                }
            }
            5 => {
                let (attribute, value) =
                    (5 + self.random.below(5) as u8, self.random.below(10) / 9);
                Op::SetPool {
                    pool,
                    attribute,
                    value,
                }
            }
            6 => Op::ChoosePool {
                device: self.some_device(),
                pool,
            },
            7 => match pool {
                Pool::Made(pool) => Op::PoolAccess {
                    pool,
                    device: self.some_device(),
                    flags: self.random.pick(&[0, 1, 3]).unwrap_or(3),
                },
                Pool::Default(_) => return,
            },
            _ => Op::AskPool {
                pool,
                attribute: self.random.below(10) as u8,
            },
        };
        self.push(AS_IS, false, op);
    }

    fn peer(&mut self) {
        let (Some(from), Some(context)) = (self.some_context(), self.some_context()) else {
            return;
        };
        let enable = self.random.chance(600);
        self.push(from, false, Op::Peer { context, enable });
    }

    fn begin_capture(&mut self) {
        if self
            .captures
            .iter()
            .filter(|capture| !capture.is_over)
            .count()
            >= 3
        {
            return;
        }
        let Some(on) = self.some_stream() else { return };
        if self.capture_on(on).is_some() && !self.random.chance(50) {
            return;
        }
        let mode = self.random.pick(&[0, 1, 1, 2, 2]).unwrap_or(2);
        self.push(
            on.context,
            on.per_thread,
            Op::BeginCapture {
                stream: on.stream,
                mode,
            },
        );
        let is_legacy = on.stream == Stream::LEGACY || on.stream == Stream::NULL && !on.per_thread;
        if !is_legacy && self.capture_on(on).is_none() {
            self.captures.push(Capture {
                on,
                blocks: Vec::new(),
                is_over: false,
            });
        }
    }

    fn end_capture(&mut self) {
        self.captures.retain(|capture| !capture.is_over);
        if self.captures.is_empty() {
            return;
        }
        let index = self.random.index(self.captures.len());
        let capture = self.captures[index].clone();
        let thread = capture.on.thread;
        let is_special = capture.on.stream.slot().is_none();
        if thread != self.thread && !self.random.chance(60) {
            if !self.threads[usize::from(thread)] {
                // The thread is gone: nothing can end what it began on its own stream.
                if is_special {
                    return;
                }
            } else {
                self.thread = thread;
            }
        }
        if is_special && thread != self.thread {
            return;
        }
        let empty = (0..GRAPHS).find(|slot| self.graphs[*slot].is_none());
        let Some(graph) = empty else {
            return self.destroy_graph();
        };
        self.captures.remove(index);
        let (stream, context) = (capture.on.stream, capture.on.context);
        self.push(
            context,
            capture.on.per_thread,
            Op::EndCapture {
                stream,
                graph: graph as u8,
            },
        );
        let exec = self.random.chance(850);
        if exec {
            let flags = self.random.below(2) as u8;
            self.push(
                context,
                false,
                Op::Instantiate {
                    graph: graph as u8,
                    flags,
                },
            );
        }
        let is_fresh = capture
            .blocks
            .iter()
            .all(|slot| self.blocks[usize::from(*slot)].is_some());
        self.graphs[graph] = Some(Graph {
            context,
            exec,
            blocks: capture.blocks,
            is_fresh,
        });
    }

    fn exchange_mode(&mut self) {
        let mode = self.random.pick(&[0, 0, 1, 2, 7]).unwrap_or(0);
        self.push(AS_IS, false, Op::ExchangeMode { mode });
    }

    fn launch(&mut self) {
        let index = self.random.index(GRAPHS);
        let Some(graph) = self.graphs[index].clone() else {
            return;
        };
        if !graph.exec || !graph.is_fresh {
            return;
        }
        let Some(on) = self.some_stream() else { return };
        if self.capture_on(on).is_some() || on.context != graph.context {
            return;
        }
        for block in &graph.blocks {
            if !self.order_before(*block, on) {
                return;
            }
        }
        self.push(
            on.context,
            on.per_thread,
            Op::Launch {
                graph: index as u8,
                stream: on.stream,
            },
        );
        for block in graph.blocks {
            self.used(block, on);
        }
    }

    fn destroy_graph(&mut self) {
        let index = self.random.index(GRAPHS);
        let Some(graph) = &mut self.graphs[index] else {
            return;
        };
        let exec_only = graph.exec && self.random.chance(300);
        graph.exec = false;
        if !exec_only {
            self.graphs[index] = None;
        }
        self.push(
            AS_IS,
            false,
            Op::DestroyGraph {
                graph: index as u8,
                exec_only,
            },
        );
    }

    fn trim_graphs(&mut self) {
        let device = self.some_device();
        self.push(AS_IS, false, Op::TrimGraphs { device });
    }

    fn probe(&mut self) {
        let Some(context) = self.some_context() else {
            return;
        };
        let async_ = self.random.chance(300);
        self.push(context, false, Op::Probe { async_ });
    }

    fn change_thread(&mut self) {
        self.thread = self.random.below(THREADS as u64) as u8;
        let fresh = !std::mem::replace(&mut self.threads[usize::from(self.thread)], true);
        if (fresh || self.random.chance(300))
            && let Some(context) = self.some_context()
        {
            self.push(context, false, Op::SetContext);
        }
    }

    fn end_thread(&mut self) {
        let thread = 1 + self.random.below(THREADS as u64 - 1) as u8;
        if !self.threads[usize::from(thread)] {
            return;
        }
        let special = |capture: &Capture| {
            !capture.is_over && capture.on.thread == thread && capture.on.stream.slot().is_none()
        };
        if self.captures.iter().any(special) && !self.random.chance(20) {
            return;
        }
        self.threads[usize::from(thread)] = false;
        self.thread = 0;
        self.push(AS_IS, false, Op::EndThread { thread });
    }

    fn fork(&mut self) {
        let calls = self.random.chance(500);
        if self.random.chance(300) {
            self.push(AS_IS, false, Op::Fork { calls });
        }
    }

    fn pause(&mut self) {
        self.push(AS_IS, false, Op::Pause);
    }

    fn threads_in_turn(&mut self) {
        if self.is_capturing() {
            return;
        }
        if let Some(context) = self.some_context() {
            let threads = 20 + self.random.below(40) as u8;
            self.push(context, false, Op::ThreadsInTurn { threads });
        }
    }

    fn storm(&mut self) {
        if !self.shape.storms || self.is_capturing() {
            return;
        }
        let Some(context) = self.some_context() else {
            return;
        };
        let (threads, bytes) = (
            2 + self.random.below(6) as u8,
            (1 + self.random.below(64) as u32) << 20,
        );
        self.push(context, false, Op::Storm { threads, bytes });
    }
}
