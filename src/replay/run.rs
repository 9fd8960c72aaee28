//! Drives an allocator with recorded requests.

use super::allocator::Allocator;
use super::outcome::Outcome;
use super::torch;
use crate::requests::{Op, Requests};

/// The options of PyTorch's allocator that were set when requests were recorded, as they are written into
/// `PYTORCH_CUDA_ALLOC_CONF`; empty if none was.
pub fn torch_options(requests: &Requests) -> String {
    torch::Options::of(requests).to_string()
}

/// Serves all requests and returns the outcome. What is left out of them by an earlier refusal is left out: a block
/// that could not be had is not freed.
pub fn run(requests: &Requests, allocator: &mut dyn Allocator) -> Outcome {
    run_watched(requests, allocator, &mut |_| {})
}

/// Requests between two reports of progress.
const LOOK: usize = 1 << 14;

/// As [`run`], telling from time to time how many requests were served.
pub fn run_watched(
    requests: &Requests,
    allocator: &mut dyn Allocator,
    served: &mut dyn FnMut(usize),
) -> Outcome {
    let mut outcome = Outcome::new(requests);
    let mut refused = rustc_hash::FxHashSet::default();
    let skip = if allocator.begin_with(requests.given()) {
        requests.given().blocks.len()
    } else {
        0
    };
    for (index, request) in requests.iter().enumerate() {
        if index % LOOK == LOOK - 1 {
            served(index);
        }
        match request.op {
            Op::Allocate if index < skip => {}
            Op::Allocate => {
                if allocator.allocate(&request).is_err() {
                    refused.insert(request.block);
                    outcome.refused(index, &request);
                }
            }
            Op::Free if refused.is_empty() || !refused.remove(&request.block) => {
                allocator.free(&request);
            }
            Op::Free => continue,
            Op::Done => allocator.done(&request),
            Op::Trim => allocator.trim(&request),
        }
        let is_refused = request.op == Op::Allocate && refused.contains(&request.block);
        outcome.see(index, &request, is_refused, allocator);
    }
    outcome.end(allocator);
    outcome
}
