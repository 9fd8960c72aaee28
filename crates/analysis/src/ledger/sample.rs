//! Training runs made up for tests: the requests of a framework, with planted faults and without.

use tempfile::TempDir;

use gpushim_trace::{Class, Event, Kind, StackNode, Trace, Writer, WriterOptions};

mod drawn;
mod python;
mod steps;

/// Return addresses that stand for functions.
pub const PARAMETERS: u64 = 0x10_0000;
pub const ACTIVATIONS: u64 = 0x20_0000;
pub const GRADIENTS: u64 = 0x30_0000;
pub const STATE: u64 = 0x40_0000;
pub const LEAK: u64 = 0x50_0000;
pub const MAIN: u64 = 0x90_0000;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Training {
    pub steps: u64,
    pub layers: u64,
    /// True if it announces ranges: a step, with forward, backward and optimizer in it.
    pub ranges: bool,
    /// True if allocations have stacks.
    pub stacks: bool,
    /// True if the stacks have Python functions.
    pub python: bool,
    /// True if a single function allocates everything.
    pub one_function: bool,
    /// True if batches differ in length.
    pub varies: bool,
    /// Bytes that each step leaves behind; `leaks_every` is the number of steps from one leak to
    /// the next.
    pub leak: u64,
    pub leaks_every: u64,
    /// A cache that grows in the first steps: bytes per step, and steps.
    pub cache: (u64, u64),
    /// True if all is freed in the end.
    pub takes_down: bool,
    /// True if the GPU is known: of 8 GiB, 5 are reserved, and 3 for the last milliseconds.
    pub has_gpu: bool,
    /// Forward and backward passes before each optimizer step, whose gradients add up.
    pub micro_batches: u64,
    /// Number of steps from one evaluation to the next; 0 is never.
    pub evaluates_every: u64,
    /// Threads that each step starts, with memory of their own.
    pub threads: u64,
    /// True if activations are computed again in the backward pass.
    pub recomputes: bool,
    /// The step in which the optimizer makes its state.
    pub state_at: u64,
    /// The step in which a part of the weights is made.
    pub weights_at: Option<u64>,
    /// Number of steps after which the kept losses are read and freed; 0 is never.
    pub reads_losses_every: u64,
    /// True if a workspace is kept for each length of a batch.
    pub has_workspaces: bool,
    /// True if the next batch is fetched before a step ends.
    pub prefetches: bool,
    /// True if the backward pass and the optimizer allocate memory for a moment.
    pub has_temporaries: bool,
    /// True if gradients are set to zero and not freed.
    pub keeps_gradients: bool,
    /// Tokens of a sequence at most, for a run without training; 0 is a training. Each step is a
    /// sequence whose keys and values are kept until its end.
    pub generates: u64,
    /// True if keys and values are joined with the earlier ones; false if they are kept beside
    /// them.
    pub joins: bool,
    /// True if the ring is too small for all events.
    pub is_wrapped: bool,
    pub seed: u64,
}

impl Default for Training {
    fn default() -> Training {
        Training {
            steps: 30,
            layers: 6,
            ranges: false,
            stacks: true,
            python: false,
            one_function: false,
            varies: false,
            leak: 0,
            leaks_every: 1,
            cache: (0, 0),
            takes_down: false,
            has_gpu: false,
            micro_batches: 1,
            evaluates_every: 0,
            threads: 0,
            recomputes: false,
            state_at: 0,
            weights_at: None,
            reads_losses_every: 0,
            has_workspaces: false,
            prefetches: false,
            has_temporaries: false,
            keeps_gradients: false,
            generates: 0,
            joins: false,
            is_wrapped: false,
            seed: 1,
        }
    }
}

/// A run that is being recorded.
struct Run {
    writer: Writer,
    how: Training,
    next: u64,
    live: Vec<(u64, u64)>,
    ranges: Vec<u32>,
    thread: u32,
    random: u64,
    python: python::Functions,
}

impl Training {
    /// Records the run into a trace.
    pub fn record(&self) -> (TempDir, Trace) {
        let (dir, trace) = self.record_in(4 << 20);
        assert_eq!(trace.lost(), 0);
        if !self.is_wrapped {
            return (dir, trace);
        }
        let events = trace.events().count() as u64;
        drop((dir, trace));
        // Room for half of the events at least, for three quarters at most.
        self.record_in(events * 3 / 4 * 64)
    }

    fn record_in(&self, bytes: u64) -> (TempDir, Trace) {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            bytes,
            ..WriterOptions::default()
        };
        let writer = Writer::create(&dir.path().join("a.trace"), &options).unwrap();
        let mut run = Run {
            writer,
            how: self.clone(),
            next: 1,
            live: Vec::new(),
            ranges: Vec::new(),
            thread: 7,
            random: self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            python: python::Functions::default(),
        };
        run.all();
        let trace = Trace::open(run.writer.path()).unwrap();
        (dir, trace)
    }
}

impl Run {
    fn segment(&self, kind: Kind, address: u64, size: u64) {
        let event = self.event(kind, address, size, 0);
        self.writer.record(&event);
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
        } else if self.how.python {
            let frames = self.python.frames(&self.writer, function);
            self.writer.stack(top, &frames)
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
            thread: self.thread,
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
