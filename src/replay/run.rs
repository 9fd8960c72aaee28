//! Drives an allocator with recorded requests.

use super::outcome::Outcome;
use super::torch;
use crate::requests::{InitialState, Op, Request, Requests};

/// The options of PyTorch's allocator that were set when requests were recorded, as they are written into
/// `PYTORCH_CUDA_ALLOC_CONF`; empty if none was.
pub fn torch_options(requests: &Requests) -> String {
    torch::Options::of(requests).to_string()
}

/// A request that could not be met within the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// What calls of the driver there were, and how long they would have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DriverTime {
    /// Calls that get memory, map it or give it back.
    pub calls: u64,
    /// Nanoseconds of all calls, by the prices of an H100.
    pub ns: u64,
}

/// An allocator that serves recorded requests. It is told of each block by the number that
/// [`Requests`] gave it.
pub trait Allocator {
    /// A block is asked for.
    ///
    /// # Errors
    /// There is no room for it.
    fn allocate(&mut self, request: &Request) -> Result<(), OutOfMemory>;

    /// A block that was handed out comes back.
    fn free(&mut self, request: &Request);

    /// Streams are done with a block that came back while they used it. Our own pools order what comes next after
    /// them, and know it free before.
    fn done(&mut self, _request: &Request) {}

    /// The program asked for cached memory to be given back: all (`torch.cuda.empty_cache`), or with a stream what
    /// the stream-ordered pool holds beyond so many bytes.
    fn trim(&mut self, request: &Request);

    /// What was there when the recording began; false if this allocator asks for it anew instead.
    fn begin_with(&mut self, _given: &InitialState) -> bool {
        false
    }

    /// Bytes held from the driver now.
    fn reserved(&self) -> u64;

    /// Bytes of the device that this takes: the driver gives more than it was asked for where it gives whole pages.
    fn taken(&self) -> u64 {
        self.reserved()
    }

    /// Bytes of the largest request that could be met without the driver.
    fn largest_free(&self) -> u64;

    /// What the driver had to do so far.
    fn driver_time(&self) -> DriverTime;
}

/// Serves all requests, and says what came of it. What is left out of them by an earlier refusal is
/// left out: a block that could not be had is not freed.
pub fn run(requests: &Requests, allocator: &mut dyn Allocator) -> Outcome {
    run_watched(requests, allocator, &mut |_| {})
}

/// How many requests are served between two looks of who watches.
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
