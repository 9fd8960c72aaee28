//! Drives an allocator with recorded requests.

use super::allocator::Allocator;
use super::outcome::Outcome;
use super::torch;
use crate::requests::{Op, Request, Requests};
use rustc_hash::FxHashSet;

/// The options of PyTorch's allocator that were set when requests were recorded, as they are written into
/// `PYTORCH_CUDA_ALLOC_CONF`; empty if none was.
pub fn torch_options(requests: &Requests) -> String {
    torch::Options::of(requests).to_string()
}

/// Serves all requests and returns the outcome. What is left out of them by an earlier refusal is left out: a block
/// that could not be had is not freed.
pub fn run<A: Allocator + ?Sized>(requests: &Requests, allocator: &mut A) -> Outcome {
    let has_steps = !requests.steps().is_empty();
    let mut outcome = run_watched(requests, allocator, has_steps, &mut |_| {});
    outcome.divide(requests);
    outcome
}

/// Requests between two reports of progress.
const LOOK: usize = 1 << 14;
/// Requests that an allocator is told of before they come.
const AHEAD: usize = 32;

/// As [`run`], telling from time to time how many requests were served. `has_steps`: [`Outcome::divide`] follows, once the requests
/// know their steps.
pub fn run_watched<A: Allocator + ?Sized>(
    requests: &Requests,
    allocator: &mut A,
    has_steps: bool,
    served: &mut dyn FnMut(usize),
) -> Outcome {
    let mut run = Run {
        outcome: Outcome::new(requests, has_steps),
        refused: FxHashSet::default(),
        skip: if allocator.begin_with(requests.given()) {
            requests.given().blocks.len()
        } else {
            0
        },
    };
    let mut all = requests.iter();
    let mut next = Vec::with_capacity(AHEAD);
    let mut first = 0;
    loop {
        next.clear();
        next.extend(all.by_ref().take(AHEAD));
        if next.is_empty() {
            break;
        }
        allocator.expect(&next);
        for (index, request) in (first..).zip(&next) {
            run.serve(index, request, allocator);
        }
        first += next.len();
        if first.is_multiple_of(LOOK) {
            served(first);
        }
    }
    run.outcome.end(allocator);
    run.outcome
}

/// How far a run is.
struct Run {
    outcome: Outcome,
    /// Blocks that could not be had.
    refused: FxHashSet<u32>,
    /// Requests that the allocator has begun with.
    skip: usize,
}

impl Run {
    fn serve<A: Allocator + ?Sized>(&mut self, index: usize, request: &Request, allocator: &mut A) {
        let mut is_refused = false;
        match request.op {
            Op::Allocate if index < self.skip => {}
            Op::Allocate => {
                if allocator.allocate(request).is_err() {
                    is_refused = true;
                    self.refused.insert(request.block);
                    self.outcome.refused(index, request);
                }
            }
            Op::Free if self.refused.is_empty() || !self.refused.remove(&request.block) => {
                allocator.free(request);
            }
            Op::Free => return,
            Op::Done => allocator.done(request),
            Op::Trim => allocator.trim(request),
        }
        self.outcome.see(index, request, is_refused, allocator);
    }
}
