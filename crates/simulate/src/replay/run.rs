//! Serves recorded requests with an allocator.

use super::allocator::Allocator;
use super::outcome::Outcome;
use super::torch;
use gpushim_analysis::requests::{Op, Request, Requests};
use rustc_hash::FxHashSet;

/// Options of PyTorch's allocator at the time of the recording, in the format of
/// `PYTORCH_CUDA_ALLOC_CONF`; empty if all are at their default.
pub fn torch_options(requests: &Requests) -> String {
    torch::Options::of(requests).to_string()
}

/// Serves all requests and returns the outcome. The free of a refused block is skipped.
pub fn run<A: Allocator + ?Sized>(requests: &Requests, allocator: &mut A) -> Outcome {
    run_watched(requests, allocator, &mut |_| {})
}

/// Number of requests between two reports of progress.
const LOOK: usize = 1 << 14;
/// Number of requests that are announced to an allocator in advance.
const AHEAD: usize = 32;

/// Serves all requests as [`run`] does, and reports the number of served requests from time to
/// time.
pub fn run_watched<A: Allocator + ?Sized>(
    requests: &Requests,
    allocator: &mut A,
    served: &mut dyn FnMut(usize),
) -> Outcome {
    let mut run = Run {
        outcome: Outcome::new(requests),
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
            let is_served = run.serve(index, request, allocator);
            run.outcome.pass(requests, (index, is_served), allocator);
        }
        first += next.len();
        if first.is_multiple_of(LOOK) {
            served(first);
        }
    }
    run.outcome.end(allocator);
    run.outcome
}

/// State of a replay between requests.
struct Run {
    outcome: Outcome,
    /// Blocks whose allocation was refused.
    refused: FxHashSet<u32>,
    /// Number of first requests that [`Allocator::begin_with`] has already restored.
    skip: usize,
}

impl Run {
    /// Serves a request; returns false if it is skipped.
    fn serve<A: Allocator + ?Sized>(
        &mut self,
        index: usize,
        request: &Request,
        allocator: &mut A,
    ) -> bool {
        let mut is_refused = false;
        match request.op {
            Op::Allocate if index < self.skip => {}
            Op::Free if !self.refused.is_empty() && self.refused.remove(&request.block) => {
                return false;
            }
            _ => {
                if allocator.serve(request).is_err() {
                    is_refused = true;
                    self.refused.insert(request.block);
                    self.outcome.refused(index, request);
                }
            }
        }
        self.outcome.see(index, request, is_refused, allocator);
        true
    }
}
