//! Jobs that are generated from a recording.
//!
//! Each rank repeats a step of the recording, at times and with sizes of its own. Some ranks have a
//! known fault.

#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;

use gpushim_trace::{Class, Event, Facts, Kind, Site, StackNode, Writer, WriterOptions};

#[path = "base.rs"]
mod base;
#[path = "faults.rs"]
mod faults;
#[path = "retime.rs"]
mod retime;

pub use base::{Base, Call};
pub use faults::{Job, faulty};

use base::Op;

const MIB: u64 = 1 << 20;
/// An iteration takes about so long, ns.
pub const STEP_NS: u64 = 20_000_000_000;
/// Addresses of blocks are apart by two to this power: no block is as large.
const SPACE: u64 = 36;
/// Wall clock of the first rank, ns since 1970.
const BEGIN: u64 = 1_790_000_000_000_000_000;

/// Fault of a generated rank.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    None,
    /// Each step leaves this many bytes behind.
    Leak(u64, Call),
    /// It holds this much more from the start.
    Holds(u64, Call),
    /// A request fails at the end, because of the memory that this function holds.
    OutOfMemory(u64, Call),
    /// All activations are larger by this factor.
    Batch(f64),
    /// The rank has more layers.
    Model,
    Setting(&'static str, &'static str),
    /// The rank ends in the middle of its steps.
    Died,
    /// Its backward pass takes longer by this factor.
    Slow(f64),
    /// The rank leaves no trace file.
    Missing,
}

/// One rank of a generated job.
#[derive(Clone, Debug)]
pub struct Rank {
    pub rank: u32,
    pub world: u32,
    pub steps: u64,
    pub fault: Fault,
    /// All that it holds around its steps is larger by this factor: the stage of a pipeline.
    pub stage: f64,
}

/// Writes the trace of a rank; nothing if it is missing.
pub fn write(base: &Base, rank: &Rank, job: &str, folder: &Path) {
    if rank.fault == Fault::Missing {
        return;
    }
    let mut base = base.clone();
    let mut random = Random(u64::from(rank.rank).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1_e995);
    let events = base.ops.len() as u64 * (rank.steps + 1) * 2 + base.held.len() as u64 * 2 + 4096;
    let options = WriterOptions {
        bytes: (events * 64).next_power_of_two(),
        rank: Some(rank.rank),
        facts: Facts::None,
        ..WriterOptions::default()
    };
    let host = format!("node{:03}", rank.rank / 8);
    let writer = Writer::create(
        &folder.join(format!("{host}-{}.trace", rank.rank)),
        &options,
    )
    .unwrap();
    let policy = match &rank.fault {
        Fault::Setting(key, value) => (*key, *value),
        _ => ("GPUSHIM_POLICY", "auto"),
    };
    let world = rank.world.to_string();
    for (key, value) in [
        ("host", host.as_str()),
        ("argv", "python train.py --layers 12"),
        ("world", &world),
        ("job", job),
        ("gpu.0", "NVIDIA H100 80GB HBM3, 85017755648 bytes"),
        policy,
        ("GPUSHIM_REUSE", "order"),
    ] {
        writer.fact(key, value);
    }
    let grown = match rank.fault {
        Fault::Batch(factor) => factor,
        _ => 1.0,
    };
    let kept = match &rank.fault {
        Fault::Leak(bytes, call) => Some((*bytes, base.with_call(call))),
        _ => None,
    };
    let held_too = match &rank.fault {
        Fault::Holds(bytes, call) | Fault::OutOfMemory(bytes, call) => {
            Some((*bytes, base.with_call(call)))
        }
        _ => None,
    };
    let layers = if rank.fault == Fault::Model { 1.4 } else { 1.0 };
    let mut run = Run::new(&writer, &base);
    for (size, stack) in &base.held {
        let size = (*size as f64 * layers * rank.stage) as u64;
        run.alloc_new(size.max(512), *stack);
    }
    if let Some((bytes, stack)) = held_too {
        run.alloc_new(bytes, stack);
    }
    // Duration of an operation: a part of an iteration.
    let per_step = base.ops.len() as u64 + 6;
    let steps = if rank.fault == Fault::Died {
        rank.steps * 2 / 3
    } else {
        rank.steps
    };
    let slow = match rank.fault {
        Fault::Slow(factor) => factor,
        _ => 1.0,
    };
    run.pass(50_000_000);
    for step in 0..steps {
        let jitter = 0.98 + 0.04 * random.part();
        let op_ns = (STEP_NS as f64 * jitter / per_step as f64) as u64;
        let batch = grown * (0.99 + 0.02 * random.part());
        run.push(&format!("step {step}"));
        run.push("forward");
        let half = base.ops.len() / 2;
        let more = if rank.fault == Fault::Model {
            base.ops.len() * 2 / 5
        } else {
            0
        };
        for (at, op) in base.ops.iter().enumerate() {
            if at == half {
                if let Some((bytes, stack)) = kept {
                    run.alloc_new(bytes, stack);
                }
                run.extra(&base.ops[..more], batch);
                run.pop();
                run.push("backward");
            }
            let is_last = rank.fault == Fault::Died && step + 1 == steps && at == half + half / 2;
            if is_last {
                break;
            }
            run.op(op, 0, batch);
            let factor = if at >= half {
                1.0 + (slow - 1.0) * 2.0
            } else {
                1.0
            };
            run.pass((op_ns as f64 * factor) as u64);
        }
        if rank.fault == Fault::Died && step + 1 == steps {
            break;
        }
        run.pop();
        run.pop();
        run.pass(op_ns);
    }
    if let Fault::OutOfMemory(..) = rank.fault {
        run.fails(40 << 30);
    }
    let times = run.times;
    if rank.fault != Fault::Died {
        writer.fact("ended", "exit");
    }
    let path = writer.path().to_path_buf();
    drop(writer);
    // Ranks of a host start within a second, hosts within twenty.
    let shift =
        u64::from(rank.rank / 8) * 2_311_000_000 % 20_000_000_000 + (random.part() * 1e9) as u64;
    retime::retime(&path, BEGIN + shift, &times);
}

/// State while a rank is written.
struct Run<'a> {
    writer: &'a Writer,
    stacks: Vec<u32>,
    ranges: Vec<u32>,
    now: u64,
    /// Times of all events, ns since the start.
    times: Vec<u64>,
    next: u64,
    sizes: HashMap<u64, u64>,
    allocated: u64,
    reserved: u64,
    /// Address range of a step's blocks. Blocks of further layers have other addresses.
    slots: u64,
}

impl<'a> Run<'a> {
    fn new(writer: &'a Writer, base: &Base) -> Run<'a> {
        let stack = |calls: &Vec<Call>| {
            calls.iter().fold(0, |parent, (name, file, line)| {
                let (name, file) = (writer.intern(name), writer.intern(file));
                let key = [name.into(), file.into(), (*line).into(), 1];
                let site = Site {
                    name,
                    file,
                    line: *line,
                };
                let id = writer.site(&key, || Some(site)).unwrap();
                writer.stack_child(parent, StackNode::Site(id))
            })
        };
        Run {
            writer,
            stacks: base.stacks.iter().map(stack).collect(),
            ranges: Vec::new(),
            now: 1_000_000,
            times: Vec::new(),
            next: 1 << 12,
            sizes: HashMap::new(),
            allocated: 0,
            reserved: 0,
            slots: base.ops.len() as u64,
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now += ns;
    }

    fn event(&mut self, event: Event) -> Event {
        self.now += 50;
        self.times.push(self.now);
        let allocated = self.allocated;
        Event {
            device: 0,
            thread: 7,
            extra: [allocated, self.reserved],
            ..event
        }
    }

    fn alloc_new(&mut self, size: u64, stack: usize) {
        self.next += 1;
        self.alloc(self.next << SPACE, size, stack);
    }

    fn alloc(&mut self, address: u64, size: u64, stack: usize) {
        self.allocated += size;
        self.reserved = self
            .reserved
            .max((self.allocated + self.allocated / 20).next_multiple_of(20 * MIB));
        self.sizes.insert(address, size);
        let stack = self.stacks[stack];
        let event = self.event(Event {
            address,
            size,
            stack,
            ..Event::new(Kind::TensorAlloc, Class::Tensor)
        });
        self.writer.record_alloc(&event);
    }

    fn free(&mut self, address: u64) {
        let Some(size) = self.sizes.remove(&address) else {
            return;
        };
        self.allocated -= size;
        let event = self.event(Event {
            address,
            size,
            ..Event::new(Kind::TensorFree, Class::Tensor)
        });
        self.writer.record_free(&event);
    }

    fn op(&mut self, op: &Op, from: u64, batch: f64) {
        match op {
            Op::Alloc { slot, size, stack } => {
                let size = if *size >= MIB {
                    (*size as f64 * batch) as u64
                } else {
                    *size
                };
                self.alloc((from + *slot as u64 + 1) << SPACE, size, *stack);
            }
            Op::Free { slot } => self.free((from + *slot as u64 + 1) << SPACE),
        }
    }

    /// Further layers: some operations again, at other addresses. Their remaining blocks are freed.
    fn extra(&mut self, ops: &[Op], batch: f64) {
        let from = self.slots;
        ops.iter().for_each(|op| self.op(op, from, batch));
        for op in ops {
            if let Op::Alloc { slot, .. } = op {
                self.free((from + *slot as u64 + 1) << SPACE);
            }
        }
    }

    fn push(&mut self, name: &str) {
        let name = self.writer.intern(name);
        let top = self.ranges.last().copied().unwrap_or(0);
        let node = self
            .writer
            .stack_child(top, StackNode::Range { name, domain: 0 });
        self.ranges.push(node);
        let event = self.event(Event {
            address: name.into(),
            stack: node,
            ..Event::new(Kind::RangePush, Class::Device)
        });
        self.writer.record(&event);
    }

    fn pop(&mut self) {
        self.ranges.pop();
        let top = self.ranges.last().copied().unwrap_or(0);
        let event = self.event(Event {
            stack: top,
            ..Event::new(Kind::RangePop, Class::Device)
        });
        self.writer.record(&event);
    }

    fn fails(&mut self, size: u64) {
        let stack = self.stacks[0];
        let event = self.event(Event {
            size,
            stack,
            ..Event::new(Kind::TensorOutOfMemory, Class::Tensor)
        });
        self.writer.record(&event);
    }
}

struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn part(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
