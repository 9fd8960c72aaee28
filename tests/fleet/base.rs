//! A step of a recording, which the ranks of a made-up job repeat.

use std::collections::HashMap;
use std::path::Path;

use super::MIB;
use gpushim_command::recording::{self, Frame};
use gpushim_trace::Kind;

/// A function, its file and the line of the call.
pub type Call = (String, String, u32);

/// Operation of a step on a block.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Alloc {
        slot: usize,
        size: u64,
        stack: usize,
    },
    Free {
        slot: usize,
    },
}

/// A step, and the memory that is held around it.
#[derive(Clone, Debug)]
pub struct Base {
    /// Sizes and stacks of blocks that are made once, before the first step.
    pub held: Vec<(u64, usize)>,
    pub ops: Vec<Op>,
    /// Each the outermost call first.
    pub stacks: Vec<Vec<Call>>,
}

impl Base {
    /// Takes the first `most` allocations of a recording, with their frees, as a step.
    ///
    /// Blocks that the recording does not free are freed at the end of the step, as a backward pass
    /// does. A model is held around the step. A step has about 3 GiB.
    pub fn of(path: &Path, most: usize) -> Base {
        let recording = recording::open(path).unwrap();
        let names = &mut *recording.names();
        let mut known = HashMap::new();
        let mut base = Base {
            held: Vec::new(),
            ops: Vec::new(),
            stacks: Vec::new(),
        };
        let has_stacks = recording.events().any(|record| record.event.stack != 0);
        let mut live: HashMap<u64, usize> = HashMap::new();
        let (mut slots, mut now, mut peak) = (0, 0, 0);
        let mut sizes = Vec::new();
        for record in recording.events() {
            let event = &record.event;
            match event.kind {
                Kind::TensorAlloc if slots < most && (event.stack != 0 || !has_stacks) => {
                    let key = (event.stack, if has_stacks { 0 } else { event.size.ilog2() });
                    let stack = *known.entry(key).or_insert_with(|| {
                        let mut calls = calls(&names.stack(event.stack));
                        if calls.is_empty() {
                            let file = "/home/me/layer.py".to_string();
                            calls.push(("Layer.forward".to_string(), file, 10 + key.1));
                        }
                        base.stacks.push(calls);
                        base.stacks.len() - 1
                    });
                    let size = event.size;
                    base.ops.push(Op::Alloc {
                        slot: slots,
                        size,
                        stack,
                    });
                    live.insert(event.address, slots);
                    sizes.push(size);
                    now += size;
                    peak = peak.max(now);
                    slots += 1;
                }
                Kind::TensorFree => {
                    if let Some(slot) = live.remove(&event.address) {
                        now -= sizes[slot];
                        base.ops.push(Op::Free { slot });
                    }
                }
                _ => {}
            }
        }
        let mut rest: Vec<usize> = live.into_values().collect();
        rest.sort_unstable();
        base.ops
            .extend(rest.into_iter().rev().map(|slot| Op::Free { slot }));
        let scale = (3_u64 << 30) as f64 / peak as f64;
        for op in &mut base.ops {
            if let Op::Alloc { size, .. } = op {
                *size = ((*size as f64 * scale) as u64).max(512);
            }
        }
        let model = (
            "build_model".to_string(),
            "/home/me/model.py".to_string(),
            16,
        );
        let stack = base.with_call(&model);
        base.held = (0..48)
            .map(|layer| (80 * MIB + layer * 4096, stack))
            .collect();
        base
    }

    /// Adds a call from `main`; its stack.
    pub fn with_call(&mut self, call: &Call) -> usize {
        let main = ("main".to_string(), "/home/me/train.py".to_string(), 88);
        self.stacks.push(vec![main, call.clone()]);
        self.stacks.len() - 1
    }
}

fn calls(stack: &[Frame]) -> Vec<Call> {
    let mut all: Vec<Call> = stack
        .iter()
        .flat_map(|frame| match frame {
            Frame::Call(symbols) => symbols.to_vec(),
            Frame::Range(_) => Vec::new(),
        })
        .map(|symbol| {
            let file = symbol.file.or(symbol.module).unwrap_or_default();
            (symbol.function, file, symbol.line.unwrap_or(0))
        })
        .collect();
    all.reverse();
    all.truncate(24);
    all
}
