//! The run up to a failed request, replayed without some conditions: the request succeeds or fails.

use super::figures::Situation;
use super::find::Shortage;
use super::leak::Leak;
use super::search::{Candidate, Without, World};
use super::until::Until;
use crate::ledger::Focus;
use crate::recording::Recording;
use crate::replay::{Policy, ReplayDevice, run};
use crate::requests::{Changed, Op, Request, Requests};
use gpushim_alloc::Policy as Ours;
use gpushim_trace::Layer;

/// Requests beyond which nothing is replayed: a replay takes about a microsecond for each.
const MOST: usize = 4_000_000;
/// Bytes beyond which a request is not tried: no device has as much.
const LARGEST: u64 = 1 << 42;
/// Bytes that a framework's blocks are multiples of.
const ROUNDING: u64 = 512;

/// The run up to a request, which is included.
pub(super) struct Replayed<'a> {
    situation: &'a Situation,
    pub requests: Requests,
    /// The requests without the blocks that iterations left behind.
    without_leak: Option<Requests>,
    /// The allocator that served the recorded run.
    pub policy: Policy,
    /// Bytes that the allocator held.
    own: u64,
}

impl<'a> Replayed<'a> {
    /// Reads the requests up to the one that failed.
    ///
    /// # Errors
    /// The run cannot be replayed, or a replay serves the request: the reason, for people.
    pub fn of(
        recording: &dyn Recording,
        shortage: &Shortage,
        situation: &'a Situation,
        leak: &Leak,
    ) -> Result<Replayed<'a>, &'static str> {
        let is_bound = situation.has_framework_limit();
        let is_known = situation.free.is_some() || !shortage.by_framework || is_bound;
        if situation.is_unknown() || !is_known {
            return Err("the memory that there was is not known");
        }
        if recording.coverage().wrapped {
            return Err("the beginning of the run is no longer in the recording");
        }
        if shortage.size > LARGEST {
            return Err("the request is larger than any device");
        }
        let Some(device) = shortage.device else {
            return Err("the device is not known");
        };
        let layer = match shortage.by_framework {
            true => Layer::Tensor,
            false => Layer::Device,
        };
        let focus = Focus {
            layer,
            device: Some(device),
        };
        let read = |without| {
            let until = Until {
                recording,
                ticket: shortage.ticket,
                without,
            };
            let mut all = Requests::of(&until, focus);
            let mut requests = all.remove(&device).unwrap_or_default();
            requests.push(Request {
                op: Op::Allocate,
                block: requests.blocks(),
                bytes: shortage.size,
                stream: (shortage.by_framework || shortage.is_ordered).then_some(shortage.stream),
                thread: shortage.thread,
                ns: shortage.ns,
            });
            requests
        };
        let requests = read(None);
        if requests.len() > MOST {
            return Err(
                "the run before it is too long to be replayed here: see `gpushim replay --limit`",
            );
        }
        let reserved = situation.cache.map(|cache| cache.reserved);
        // Memory of other kinds takes up part of the device, too.
        let is_all = !shortage.by_framework && requests.odd().not_pooled == 0;
        let replayed = Replayed {
            own: reserved.filter(|_| !is_all).unwrap_or(situation.held),
            policy: recorded(shortage.by_framework, situation.policy.as_deref()),
            without_leak: (!leak.tickets.is_empty()).then(|| read(Some(&leak.tickets))),
            requests,
            situation,
        };
        if replayed.fits(Without::NONE) {
            return Err("the replay of the same allocator meets it, and so says nothing of others");
        }
        Ok(replayed)
    }

    /// Returns the bytes that the allocator could use.
    pub fn memory(&self, without: Without) -> u64 {
        let more = match without.has(Candidate::FrameworkCache) {
            true => self.situation.in_framework,
            false => 0,
        };
        let room = self.situation.room(without);
        self.own.saturating_add(room).saturating_add(more)
    }

    /// Returns true if an allocator serves all requests with this much memory, bytes.
    pub fn meets(&self, policy: Policy, memory: u64) -> bool {
        meets(&self.requests, policy, memory)
    }
}

/// Returns the allocator that served a run.
fn recorded(by_framework: bool, policy: Option<&str>) -> Policy {
    if by_framework {
        return Policy::Torch;
    }
    // Requests that are forwarded to the driver are in whole blocks.
    match policy {
        Some("off") => Policy::Gpushim(Ours::Blocks),
        Some(name) => name.parse().unwrap_or(Policy::Gpushim(Ours::Vmm)),
        None => Policy::Gpushim(Ours::Vmm),
    }
}

fn meets(requests: &Requests, policy: Policy, memory: u64) -> bool {
    let device = ReplayDevice {
        limit: Some(memory),
        ..ReplayDevice::default()
    };
    let mut allocator = policy.build(&device, requests);
    run(requests, &mut *allocator).out_of_memory == 0
}

/// Returns the live bytes after the last request, with blocks that streams still use: no allocator
/// needs less.
fn live(requests: &Requests) -> u64 {
    let mut live = 0_u64;
    for request in requests.iter() {
        let bytes = request.bytes.checked_next_multiple_of(ROUNDING);
        let bytes = bytes.unwrap_or(request.bytes);
        let is_late = requests.allocator().is_late(request.block);
        match request.op {
            Op::Allocate => live = live.saturating_add(bytes),
            Op::Free if !is_late => live = live.saturating_sub(bytes),
            Op::Done if is_late => live = live.saturating_sub(bytes),
            Op::Free | Op::Done | Op::Trim => {}
        }
    }
    live
}

impl World for Replayed<'_> {
    fn has(&self, one: Candidate) -> bool {
        match one {
            Candidate::Leak => self.without_leak.is_some(),
            Candidate::Waiting => self.requests.has_waiting(),
            Candidate::Pools => self.requests.has_pools(),
            Candidate::Streams => self.situation.by_framework && self.requests.has_streams(),
            Candidate::Pieces => true,
            _ => self.situation.has(one),
        }
    }

    fn fits(&self, without: Without) -> bool {
        let leak = self.without_leak.as_ref();
        let leak = leak.filter(|_| without.has(Candidate::Leak));
        let mut changed: Option<Requests> = None;
        let changes: [(Candidate, Changed); 3] = [
            (Candidate::Waiting, Requests::without_waiting),
            (Candidate::Pools, Requests::in_one_pool),
            (Candidate::Streams, Requests::on_one_stream),
        ];
        for (one, change) in changes {
            if without.has(one) {
                let before = changed.as_ref().or(leak).unwrap_or(&self.requests);
                changed = Some(change(before));
            }
        }
        let requests = changed.as_ref().or(leak).unwrap_or(&self.requests);
        let memory = self.memory(without);
        if without.has(Candidate::Pieces) {
            return live(requests) <= memory;
        }
        meets(requests, self.policy, memory)
    }
}
