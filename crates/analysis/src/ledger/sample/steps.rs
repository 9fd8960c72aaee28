//! Allocations of a training or generating run, step by step.

use super::{ACTIVATIONS, GRADIENTS, LEAK, MAIN, PARAMETERS, Run, STATE};
use gpushim_trace::Kind;

type Block = (u64, u64);

/// Blocks that live longer than a step.
#[derive(Default)]
struct Kept {
    parameters: Vec<Block>,
    gradients: Vec<Block>,
    state: Vec<Block>,
    losses: Vec<Block>,
    workspaces: Vec<u64>,
    next_batch: Option<Block>,
    others: Vec<Block>,
}

impl Run {
    pub(super) fn all(&mut self) {
        let how = self.how.clone();
        if how.has_gpu {
            self.writer.fact("gpu.0", "a GPU, 8589934592 bytes");
            self.segment(Kind::Reserve, 1 << 46, 3 << 30);
            self.segment(Kind::Reserve, 1 << 47, 2 << 30);
        }
        let mut kept = Kept::default();
        self.weights(&mut kept, 0..how.layers);
        for step in 0..how.steps {
            self.push(&format!("step {step}"));
            if how.weights_at == Some(step) {
                self.weights(&mut kept, how.layers..how.layers + 3);
            }
            if how.generates > 0 {
                self.sequence(step, &mut kept);
            } else {
                self.train(step, &mut kept);
            }
            self.pop();
            if how.evaluates_every > 0 && (step + 1).is_multiple_of(how.evaluates_every) {
                self.evaluate();
            }
        }
        if how.takes_down {
            let of = kept.state.into_iter().chain(kept.gradients);
            let of = of.chain(kept.losses).chain(kept.next_batch);
            for block in kept.parameters.into_iter().chain(of).chain(kept.others) {
                self.free(block);
            }
        }
        if how.has_gpu {
            self.segment(Kind::Release, 1 << 47, 2 << 30);
            // Longer than a stretch of the timeline.
            std::thread::sleep(std::time::Duration::from_millis(5));
            self.segment(Kind::Reserve, 1 << 45, 1 << 20);
        }
    }

    fn weights(&mut self, kept: &mut Kept, layers: std::ops::Range<u64>) {
        let made = layers.map(|layer| self.allocate(PARAMETERS + layer, (4 << 20) + layer * 4096));
        kept.parameters.extend(made);
    }

    fn length(&mut self) -> u64 {
        if self.how.varies {
            1 + self.draw() % 7
        } else {
            4
        }
    }

    fn train(&mut self, step: u64, kept: &mut Kept) {
        let how = self.how.clone();
        for part in 0..how.micro_batches {
            let batch = if how.prefetches {
                let ready = kept.next_batch.take();
                let batch = ready.unwrap_or_else(|| self.allocate(MAIN + 1, 700_000));
                kept.next_batch = Some(self.allocate(MAIN + 1, 700_000));
                Some(batch)
            } else {
                None
            };
            let length = self.length();
            self.push("forward");
            if part == 0 && step < how.cache.0 {
                kept.others
                    .push(self.allocate(ACTIVATIONS + 99, how.cache.1));
            }
            if how.has_workspaces && !kept.workspaces.contains(&length) {
                kept.workspaces.push(length);
                kept.others
                    .push(self.allocate(ACTIVATIONS + 98, length << 20));
            }
            let mut activations: Vec<Block> = Vec::new();
            for layer in 0..how.layers {
                activations.push(self.layer(layer, length));
            }
            if how.leak > 0 && part == 0 && step.is_multiple_of(how.leaks_every) {
                kept.others.push(self.allocate(LEAK, how.leak));
            }
            self.pop();
            self.push("backward");
            for layer in (0..how.layers).rev() {
                if how.recomputes {
                    let again = self.layer(layer, length);
                    let inner = self.allocate(ACTIVATIONS + 70 + layer, length * 300_000);
                    self.free(again);
                    self.free(inner);
                }
                if kept.gradients.len() < how.layers as usize {
                    kept.gradients
                        .push(self.allocate(GRADIENTS + layer, (4 << 20) + layer * 4096));
                } else {
                    // It is added to the existing gradient.
                    let more = self.allocate(GRADIENTS + 50 + layer, (4 << 20) + layer * 4096);
                    self.free(more);
                }
                // The gradient of the layer's input.
                let passed_on = (how.has_temporaries)
                    .then(|| self.allocate(GRADIENTS + 70 + layer, length * 300_000));
                for block in activations.pop().into_iter().chain(passed_on) {
                    self.free(block);
                }
            }
            self.pop();
            if let Some(batch) = batch {
                self.free(batch);
            }
        }
        self.push("optimizer");
        if step == how.state_at {
            kept.state.extend(
                (0..how.layers).map(|layer| self.allocate(STATE + layer, (8 << 20) + layer * 8192)),
            );
        }
        if how.has_temporaries {
            // Temporary memory of the update of all parameters at once.
            let updates =
                (0..how.layers).map(|layer| (STATE + 50 + layer, (4 << 20) + layer * 4096));
            let updates: Vec<Block> = updates
                .map(|(function, size)| self.allocate(function, size))
                .collect();
            updates.into_iter().for_each(|block| self.free(block));
        }
        if !how.keeps_gradients {
            let gradients = std::mem::take(&mut kept.gradients);
            gradients.into_iter().for_each(|one| self.free(one));
        }
        self.pop();
        if how.reads_losses_every > 0 {
            kept.losses.push(self.allocate(MAIN + 2, 200_000));
            if (step + 1).is_multiple_of(how.reads_losses_every) {
                let losses = std::mem::take(&mut kept.losses);
                losses.into_iter().for_each(|one| self.free(one));
            }
        }
        self.churn(step);
    }

    /// Allocates the block that one layer's forward pass keeps for the backward pass.
    fn layer(&mut self, layer: u64, length: u64) -> Block {
        let size = if self.how.recomputes {
            length * 20_000
        } else {
            length * 300_000 + layer * 512
        };
        let activation = self.allocate(ACTIVATIONS + layer, size);
        let temporary = self.allocate(ACTIVATIONS + 50 + layer, length * 100_000);
        self.free(temporary);
        activation
    }

    /// Starts threads that allocate memory, free it and end.
    fn churn(&mut self, step: u64) {
        let own = self.thread;
        for number in 0..self.how.threads {
            self.thread = 100 + u32::try_from(step * self.how.threads + number).unwrap();
            let blocks = [30_000, 60_000].map(|size| self.allocate(MAIN + 3, size));
            blocks.into_iter().for_each(|block| self.free(block));
        }
        self.thread = own;
    }

    /// Runs some batches without a backward pass; their results are kept until the end.
    fn evaluate(&mut self) {
        self.push("evaluation");
        let mut told = Vec::new();
        for _ in 0..3 {
            let length = self.length();
            let mut before = None;
            for layer in 0..self.how.layers {
                let after = self.layer(layer, length);
                if let Some(block) = before.replace(after) {
                    self.free(block);
                }
            }
            told.push(self.allocate(MAIN + 4, 40_000));
            if let Some(block) = before {
                self.free(block);
            }
        }
        told.into_iter().for_each(|block| self.free(block));
        self.pop();
    }

    /// Generates a sequence, token by token.
    fn sequence(&mut self, step: u64, kept: &mut Kept) {
        let how = self.how.clone();
        let tokens = how.generates / 2 + self.draw() % (how.generates / 2 + 1);
        let mut cache: Vec<Block> = Vec::new();
        for token in 0..tokens {
            for layer in 0..how.layers {
                let work = self.allocate(ACTIVATIONS + layer, 250_000 + layer * 512);
                let earlier = if how.joins && token > 0 {
                    Some(cache.remove(0))
                } else {
                    None
                };
                let length = if how.joins { token + 1 } else { 1 };
                cache.push(self.allocate(ACTIVATIONS + 60 + layer, length * 65_536));
                if let Some(block) = earlier {
                    self.free(block);
                }
                self.free(work);
            }
        }
        if how.leak > 0 && step.is_multiple_of(how.leaks_every) {
            kept.others.push(self.allocate(LEAK, how.leak));
        }
        cache.into_iter().for_each(|block| self.free(block));
    }
}
