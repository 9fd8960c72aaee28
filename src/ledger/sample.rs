//! Training runs made up for tests: what a framework asks for, with planted faults and without.

use tempfile::TempDir;

use gpushim_trace::{Class, Event, Kind, StackNode, Trace, Writer, WriterOptions};

/// Return addresses that stand for functions.
pub const PARAMETERS: u64 = 0x10_0000;
pub const ACTIVATIONS: u64 = 0x20_0000;
pub const GRADIENTS: u64 = 0x30_0000;
pub const STATE: u64 = 0x40_0000;
pub const LEAK: u64 = 0x50_0000;
pub const MAIN: u64 = 0x90_0000;

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Training {
    pub steps: u64,
    pub layers: u64,
    /// Whether it announces ranges: a step, with forward, backward and optimizer in it.
    pub ranges: bool,
    /// Whether allocations have stacks.
    pub stacks: bool,
    /// Whether it is one function that allocates.
    pub one_function: bool,
    /// Whether batches differ in length.
    pub varies: bool,
    /// Bytes that each step leaves behind, and every how many steps.
    pub leak: u64,
    pub leaks_every: u64,
    /// A cache that grows by this much in each of so many first steps.
    pub cache: (u64, u64),
    /// Whether all is freed in the end.
    pub takes_down: bool,
    pub seed: u64,
}

impl Default for Training {
    fn default() -> Training {
        Training {
            steps: 30,
            layers: 6,
            ranges: false,
            stacks: true,
            one_function: false,
            varies: false,
            leak: 0,
            leaks_every: 1,
            cache: (0, 0),
            takes_down: false,
            seed: 1,
        }
    }
}

/// A run in the making.
struct Run {
    writer: Writer,
    how: Training,
    next: u64,
    live: Vec<(u64, u64)>,
    ranges: Vec<u32>,
    random: u64,
}

impl Training {
    /// Records it.
    pub fn record(&self) -> (TempDir, Trace) {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            bytes: 4 << 20,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
        let mut run = Run {
            writer,
            how: self.clone(),
            next: 1,
            live: Vec::new(),
            ranges: Vec::new(),
            random: self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        run.all();
        let trace = Trace::open(run.writer.path()).unwrap();
        assert_eq!(trace.lost(), 0);
        (dir, trace)
    }
}

impl Run {
    fn all(&mut self) {
        let how = self.how.clone();
        let parameters: Vec<_> = (0..how.layers)
            .map(|layer| self.allocate(PARAMETERS + layer, (4 << 20) + layer * 4096))
            .collect();
        let mut state = Vec::new();
        let mut kept = Vec::new();
        for step in 0..how.steps {
            self.push(&format!("step {step}"));
            let length = if how.varies { 1 + self.draw() % 7 } else { 4 };
            self.push("forward");
            if step < how.cache.0 {
                kept.push(self.allocate(ACTIVATIONS + 99, how.cache.1));
            }
            let mut activations = Vec::new();
            for layer in 0..how.layers {
                activations
                    .push(self.allocate(ACTIVATIONS + layer, length * 300_000 + layer * 512));
                let temporary = self.allocate(ACTIVATIONS + 50 + layer, length * 100_000);
                self.free(temporary);
            }
            if how.leak > 0 && step.is_multiple_of(how.leaks_every) {
                kept.push(self.allocate(LEAK, how.leak));
            }
            self.pop();
            self.push("backward");
            let mut gradients = Vec::new();
            for layer in (0..how.layers).rev() {
                gradients.push(self.allocate(GRADIENTS + layer, (4 << 20) + layer * 4096));
                self.free(activations.pop().unwrap());
            }
            self.pop();
            self.push("optimizer");
            if step == 0 {
                state.extend(
                    (0..how.layers)
                        .map(|layer| self.allocate(STATE + layer, (8 << 20) + layer * 8192)),
                );
            }
            gradients
                .into_iter()
                .for_each(|gradient| self.free(gradient));
            self.pop();
            self.pop();
        }
        if how.takes_down {
            for block in [parameters, state, kept].concat() {
                self.free(block);
            }
        }
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn allocate(&mut self, function: u64, size: u64) -> (u64, u64) {
        let top = self.ranges.last().copied().unwrap_or(0);
        let stack = if self.how.one_function {
            self.writer.stack(top, &[MAIN])
        } else if self.how.stacks {
            self.writer.stack(top, &[function, MAIN])
        } else {
            top
        };
        let address = self.next << 21;
        self.next += 1 + size / (2 << 20);
        self.writer
            .record_alloc(&self.event(Kind::TensorAlloc, address, size, stack));
        self.live.push((address, size));
        (address, size)
    }

    fn free(&mut self, (address, size): (u64, u64)) {
        self.live.retain(|(live, _)| *live != address);
        let top = self.ranges.last().copied().unwrap_or(0);
        self.writer
            .record_free(&self.event(Kind::TensorFree, address, size, top));
    }

    fn event(&self, kind: Kind, address: u64, size: u64, stack: u32) -> Event {
        Event {
            device: 0,
            thread: 7,
            address,
            size,
            stack,
            ..Event::new(kind, Class::Tensor)
        }
    }

    fn push(&mut self, name: &str) {
        if !self.how.ranges {
            return;
        }
        let name = self.writer.intern(name);
        let top = self.ranges.last().copied().unwrap_or(0);
        let node = self
            .writer
            .stack_child(top, StackNode::Range { name, domain: 0 });
        self.ranges.push(node);
        self.writer
            .record(&self.event(Kind::RangePush, name.into(), 0, node));
    }

    fn pop(&mut self) {
        if self.ranges.pop().is_some() {
            let top = self.ranges.last().copied().unwrap_or(0);
            self.writer.record(&self.event(Kind::RangePop, 0, 0, top));
        }
    }
}
