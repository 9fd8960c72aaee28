//! Writes the trace of a generated training run, to try `gpushim html` and the analyses on large
//! data.
//!
//! The run is a transformer whose sequences vary in length, with stacks and ranges, and a list that
//! keeps a tensor of each step.
//!
//!     cargo run --release --example page_trace -- FILE [EVENTS [STEPS [RANK]]]
//!
//! By default 5,000,000 events in 300 steps. Nothing is allocated outside of a step. With `SPOOL`
//! set the ring is of 64 MiB, and all events go into files beside it, as in the mode `full`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use gpushim_trace::spool::{SpoolOptions, Spooler};
use gpushim_trace::{Class, Cost, Event, Kind, StackNode, Writer, WriterOptions, flags};

const MIB: u64 = 1 << 20;
const LAYERS: u64 = 24;

/// Address of the first function. Each has 256 bytes of code; a return address is in its middle.
const CODE: u64 = 0x7000_0000;
const FUNCTIONS: [&str; 22] = [
    "py::<module>:/home/me/gpt/train.py",
    "py::main:/home/me/gpt/train.py",
    "py::train_step:/home/me/gpt/train.py",
    "py::GPT.forward:/home/me/gpt/model.py",
    "py::Block.forward:/home/me/gpt/model.py",
    "py::Attention.forward:/home/me/gpt/model.py",
    "py::MLP.forward:/home/me/gpt/model.py",
    "py::Module._call_impl:/usr/lib/python3.12/site-packages/torch/nn/modules/module.py",
    "py::Linear.forward:/usr/lib/python3.12/site-packages/torch/nn/modules/linear.py",
    "py::LayerNorm.forward:/usr/lib/python3.12/site-packages/torch/nn/modules/normalization.py",
    "py::scaled_dot_product_attention:/usr/lib/python3.12/site-packages/torch/nn/functional.py",
    "py::Tensor.backward:/usr/lib/python3.12/site-packages/torch/_tensor.py",
    "py::AdamW.step:/usr/lib/python3.12/site-packages/torch/optim/adamw.py",
    "py::cross_entropy:/usr/lib/python3.12/site-packages/torch/nn/functional.py",
    "py::next_batch:/home/me/gpt/data.py",
    "py::keep_loss:/home/me/gpt/train.py",
    "py::build_model:/home/me/gpt/model.py",
    "at::native::empty_cuda(c10::IntArrayRef, std::optional<c10::ScalarType>)",
    "at::addmm_out_cuda_impl(at::Tensor&, at::Tensor const&, at::Tensor const&)",
    "torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)",
    "AddmmBackward0::apply(std::vector<at::Tensor>&&)",
    "at::native::softmax_cuda(at::Tensor const&, long, bool)",
];

/// A run that is being made up.
struct Run {
    writer: Writer,
    random: u64,
    /// Free memory by address, as a framework that cuts tensors out of segments has it.
    free: BTreeMap<u64, u64>,
    next_segment: u64,
    allocated: u64,
    reserved: u64,
    events: u64,
    thread: u32,
    range: u32,
    ranges: Vec<u32>,
    rank: u8,
}

struct Tensor {
    address: u64,
    size: u64,
}

impl Run {
    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn stack(&self, functions: &[usize]) -> u32 {
        let frames: Vec<u64> = functions
            .iter()
            .rev()
            .map(|function| CODE + *function as u64 * 256 + 128)
            .collect();
        self.writer.stack(self.range, &frames)
    }

    fn record(&mut self, event: Event) {
        self.events += 1;
        let event = Event {
            device: self.rank,
            thread: self.thread,
            ..event
        };
        match event.kind {
            Kind::Alloc | Kind::TensorAlloc => self.writer.record_alloc(&event),
            Kind::Free | Kind::TensorFree => {
                self.writer.record_free(&event);
            }
            _ => self.writer.record(&event),
        }
    }

    fn alloc(&mut self, size: u64, functions: &[usize]) -> Tensor {
        let stack = self.stack(functions);
        let rounded = size.next_multiple_of(512);
        let fits = |(_, free): &(&u64, &u64)| **free >= rounded;
        let best = self.free.iter().filter(fits).min_by_key(|(_, free)| **free);
        let address = match best.map(|(address, free)| (*address, *free)) {
            Some((address, free)) => {
                self.free.remove(&address);
                if free > rounded {
                    self.free.insert(address + rounded, free - rounded);
                }
                address
            }
            None => self.segment(rounded, stack),
        };
        self.allocated += rounded;
        self.record(Event {
            stack,
            address,
            size,
            extra: [self.allocated, self.reserved],
            ..Event::new(Kind::TensorAlloc, Class::Tensor)
        });
        Tensor { address, size }
    }

    fn segment(&mut self, rounded: u64, stack: u32) -> u64 {
        let bytes = if rounded <= MIB {
            2 * MIB
        } else {
            rounded.max(20 * MIB).next_multiple_of(2 * MIB)
        };
        let address = self.next_segment;
        // Segments of a driver do not lie side by side.
        self.next_segment += bytes + self.random(40) * 2 * MIB;
        self.reserved += bytes;
        if bytes > rounded {
            self.free.insert(address + rounded, bytes - rounded);
        }
        self.record(Event {
            flags: flags::FORWARDED,
            stack,
            address,
            size: bytes,
            extra: [0, Cost::pack(120_000, bytes)],
            ..Event::new(Kind::Alloc, Class::Device)
        });
        address
    }

    fn free(&mut self, tensor: Tensor) {
        let mut bytes = tensor.size.next_multiple_of(512);
        let mut address = tensor.address;
        self.allocated -= bytes;
        self.record(Event {
            address,
            size: tensor.size,
            extra: [self.allocated, self.reserved],
            ..Event::new(Kind::TensorFree, Class::Tensor)
        });
        if let Some(after) = self.free.remove(&(address + bytes)) {
            bytes += after;
        }
        if let Some((&before, &free)) = self.free.range(..address).next_back()
            && before + free == address
        {
            self.free.remove(&before);
            (address, bytes) = (before, bytes + free);
        }
        self.free.insert(address, bytes);
    }

    fn push(&mut self, name: &str) {
        let name = self.writer.intern(name);
        self.ranges.push(self.range);
        self.range = self
            .writer
            .stack_child(self.range, StackNode::Range { name, domain: 0 });
        self.record(Event {
            address: name.into(),
            stack: self.range,
            ..Event::new(Kind::RangePush, Class::Device)
        });
    }

    fn pop(&mut self) {
        self.range = self.ranges.pop().unwrap_or(0);
        self.record(Event {
            stack: self.range,
            ..Event::new(Kind::RangePop, Class::Device)
        });
    }

    /// Small tensors that come and go.
    fn dust(&mut self, pairs: u64, functions: &[usize]) {
        for _ in 0..pairs {
            let size = 512 << self.random(9);
            let tensor = self.alloc(size, functions);
            self.free(tensor);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "page.trace".to_string());
    let mut number = |other: u64| {
        args.next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(other)
    };
    let (events, steps, rank) = (number(5_000_000), number(300), number(0));
    let is_spooled = std::env::var_os("SPOOL").is_some();
    let options = WriterOptions {
        bytes: if is_spooled {
            64 * MIB
        } else {
            (events * 80).next_power_of_two()
        },
        rank: Some(rank as u32),
        ..WriterOptions::default()
    };
    let writer = Writer::create(Path::new(&path), &options)?;
    for (index, name) in FUNCTIONS.iter().enumerate() {
        writer.jit(CODE + index as u64 * 256, 256, writer.intern(name));
    }
    let spooler = if is_spooled {
        Some(Spooler::start(&writer, SpoolOptions::new())?)
    } else {
        None
    };
    let mut run = Run {
        writer,
        random: 0x9e37_79b9_7f4a_7c15 ^ rank,
        free: BTreeMap::new(),
        next_segment: 0x7f20_0000_0000,
        allocated: 0,
        reserved: 0,
        events: 0,
        thread: 4711,
        range: 0,
        ranges: Vec::new(),
        rank: rank as u8,
    };
    let name = run.writer.intern("MainThread");
    run.record(Event {
        address: name.into(),
        ..Event::new(Kind::ThreadName, Class::Device)
    });
    if steps > 0 {
        train(&mut run, events, steps);
    }
    if let Some(spooler) = spooler {
        spooler.stop(Duration::from_secs(60));
    }
    println!("{path}: {} events", run.events);
    Ok(())
}

fn train(run: &mut Run, events: u64, steps: u64) {
    let parameters: Vec<Tensor> = (0..LAYERS)
        .flat_map(|_| [12 * MIB, 4 * MIB, 16 * MIB, 16 * MIB])
        .map(|size| run.alloc(size, &[0, 1, 16]))
        .collect();
    let mut optimizer = Vec::new();
    let mut losses = Vec::new();
    // Blocks of each layer, beside the dust.
    let per_step = events / steps.max(1);
    let dust = (per_step.saturating_sub(LAYERS * 48 + 60) / (LAYERS * 8) + 1).next_multiple_of(4);
    for step in 0..steps {
        run.push(&format!("step {step}"));
        let tokens = 512 + run.random(512) + if step % 37 == 36 { 500 } else { 0 };
        run.push("forward");
        let batch = run.alloc(tokens * 8 * 64, &[0, 1, 2, 14]);
        let mut kept = Vec::new();
        for layer in 0..LAYERS {
            run.push(&format!("layer {layer}"));
            let attention: &[usize] = &[0, 1, 2, 7, 3, 7, 4, 7, 5];
            let mlp: &[usize] = &[0, 1, 2, 7, 3, 7, 4, 7, 6];
            for (size, path, more) in [
                (tokens * 4096, attention, &[9, 17][..]),
                (tokens * 12288, attention, &[7, 8, 18, 17]),
                (tokens * tokens * 16, attention, &[10, 21, 17]),
                (tokens * 16384, mlp, &[7, 8, 18, 17]),
                (tokens * 16384, mlp, &[17]),
                (tokens * 4096, mlp, &[7, 8, 18, 17]),
            ] {
                let functions = [path, more].concat();
                kept.push(run.alloc(size, &functions));
                run.dust(dust / 4, &functions);
            }
            let workspace = run.alloc(8 * MIB + tokens * 512, &[attention, &[7, 8, 18]].concat());
            run.dust(dust / 2, &[attention, &[9, 17]].concat());
            run.free(workspace);
            std::thread::sleep(Duration::from_micros(150));
            run.pop();
        }
        let logits = run.alloc(tokens * 50257 * 4, &[0, 1, 2, 13, 17]);
        run.pop();
        let loss = run.alloc(MIB + MIB / 20, &[0, 1, 2, 15, 17]);
        losses.push(loss);
        run.push("backward");
        let mut gradients = Vec::new();
        let grad = run.alloc(tokens * 50257 * 4, &[0, 1, 2, 11, 19, 20]);
        run.free(logits);
        for layer in 0..LAYERS {
            let backward = [0, 1, 2, 11, 19, 20, 18, 17];
            for size in [12 * MIB, 4 * MIB, 16 * MIB, 16 * MIB] {
                gradients.push(run.alloc(size, &backward));
            }
            run.dust(dust * 2, &backward);
            for _ in 0..6 {
                let temporary = run.alloc(tokens * 4096, &backward);
                kept.pop().into_iter().for_each(|tensor| run.free(tensor));
                run.free(temporary);
            }
            std::thread::sleep(Duration::from_micros(if layer % 5 == 0 {
                500
            } else {
                250
            }));
        }
        run.free(grad);
        run.pop();
        run.push("optimizer");
        if step == 0 {
            let sizes: Vec<u64> = parameters
                .iter()
                .flat_map(|tensor| [tensor.size; 2])
                .collect();
            optimizer = sizes
                .into_iter()
                .map(|size| run.alloc(size, &[0, 1, 2, 12, 17]))
                .collect();
        }
        run.dust(dust, &[0, 1, 2, 12, 17]);
        gradients.into_iter().for_each(|tensor| run.free(tensor));
        std::thread::sleep(Duration::from_micros(900));
        run.pop();
        run.free(batch);
        run.pop();
        if step % 100 == 99 {
            let name = run.writer.intern("checkpoint saved");
            run.record(Event {
                address: name.into(),
                ..Event::new(Kind::Mark, Class::Device)
            });
        }
    }
    // The evaluation's batch is too large; the program catches that.
    let stack = run.stack(&[0, 1, 14]);
    run.record(Event {
        stack,
        size: 48 << 30,
        extra: [run.allocated, run.reserved],
        ..Event::new(Kind::TensorOutOfMemory, Class::Tensor)
    });
    optimizer.into_iter().for_each(|tensor| run.free(tensor));
    std::thread::sleep(Duration::from_millis(50));
}
