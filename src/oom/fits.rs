//! What would have met a request: found by serving the recorded requests up to it again, with other allocators and with
//! more memory.

use serde::Serialize;

use super::cause::{Cause, Situation};
use super::find::Shortage;
use super::until::Until;
use crate::ledger::Focus;
use crate::recording::Recording;
use crate::replay::{Policy, ReplayDevice, run};
use crate::requests::{Op, Request, Requests};
use gpushim_alloc::Policy as Ours;
use gpushim_trace::Layer;

/// Requests beyond which it is not tried: each try takes about a microsecond for each.
const MOST: usize = 4_000_000;
/// Steps in which the least memory is looked for, bytes.
const STEP: u64 = 2 << 20;
/// Requests beyond this size are not tried, bytes: no device has as much.
const LARGEST: u64 = 1 << 42;
/// The most tries for it.
const TRIES: usize = 12;

/// A try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Try {
    /// The allocator.
    #[cfg_attr(test, schemars(with = "String"))]
    pub policy: Policy,
    /// Whether it is the one that served the run.
    pub recorded: bool,
    /// Bytes that it could hold of the device.
    pub memory: u64,
    /// Whether all requests were met, the one that failed among them.
    pub fits: bool,
}

/// What was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fits {
    /// With the memory that there was, the recorded allocator first; then the least memory with which that one meets all
    /// requests, if it was found.
    pub tries: Vec<Try>,
    /// Bytes that were there for the allocator.
    pub memory: u64,
    /// If nothing was tried, or what was tried says nothing: why.
    pub untold: Option<&'static str>,
}

impl Fits {
    /// Of a request, its situation and the cause.
    pub(super) fn of(
        recording: &dyn Recording,
        shortage: &Shortage,
        situation: &Situation,
        cause: Cause,
    ) -> Fits {
        let untold = |why| Fits {
            untold: Some(why),
            ..Fits::default()
        };
        match cause {
            Cause::TooLarge { .. } | Cause::Growth { .. } => return Fits::default(),
            Cause::Unknown => return untold("the memory that there was is not known"),
            _ => {}
        }
        if shortage.size > LARGEST {
            return Fits::default();
        }
        if recording.coverage().wrapped {
            return untold("the beginning of the run is no longer in the recording");
        }
        let Some(device) = shortage.device else {
            return untold("the device is not known");
        };
        let focus = Focus {
            layer: if shortage.by_framework {
                Layer::Tensor
            } else {
                Layer::Device
            },
            device: Some(device),
        };
        let until = Until {
            recording,
            ticket: shortage.ticket,
        };
        let mut requests = (Requests::of(&until, focus))
            .remove(&device)
            .unwrap_or_default();
        if requests.len() > MOST {
            return untold(
                "the run before it is too long to be replayed here: see `gpushim replay --limit`",
            );
        }
        requests.push(Request {
            op: Op::Allocate,
            block: requests.blocks(),
            bytes: shortage.size,
            stream: (shortage.by_framework || shortage.is_ordered).then_some(shortage.stream),
            thread: shortage.thread,
            ns: shortage.ns,
        });
        let reserved = situation.cache.map(|cache| cache.reserved);
        // Memory of other kinds takes up some of the device, too.
        let is_all = !shortage.by_framework && requests.odd().not_pooled == 0;
        let own = reserved.filter(|_| !is_all).unwrap_or(situation.held);
        let room = match cause {
            // It refused what the device had.
            Cause::FrameworkLimit { .. } => 0,
            _ => situation.room(),
        };
        let memory = own.saturating_add(room);
        let mut policies = candidates(shortage.by_framework, situation.policy.as_deref());
        policies.dedup();
        let first = policies.first().copied();
        let attempt = |policy, memory| Try {
            policy,
            recorded: Some(policy) == first,
            memory,
            fits: fits(&requests, policy, memory),
        };
        let mut tries: Vec<Try> = Vec::new();
        for policy in policies {
            if tries.iter().all(|one| one.policy != policy) {
                tries.push(attempt(policy, memory));
            }
        }
        let Some(recorded) = tries.first().copied() else {
            return Fits::default();
        };
        if recorded.fits {
            return untold(
                "the replay of the same allocator meets it, and so says nothing of others",
            );
        }
        let least = least(&requests, recorded.policy, memory);
        tries.extend(least.map(|memory| Try {
            memory,
            fits: true,
            ..recorded
        }));
        Fits {
            tries,
            memory,
            untold: None,
        }
    }

    /// The other allocators that met it with the memory that there was.
    pub fn others(&self) -> impl Iterator<Item = Policy> + '_ {
        let with_it = self.tries.iter().filter(|one| one.fits && !one.recorded);
        with_it.map(|one| one.policy)
    }

    /// By how many bytes more the recorded allocator met it.
    pub fn more(&self) -> Option<u64> {
        let met = self.tries.iter().find(|one| one.fits && one.recorded)?;
        Some(met.memory.saturating_sub(self.memory))
    }
}

/// The allocator that served the run, and others.
fn candidates(by_framework: bool, policy: Option<&str>) -> Vec<Policy> {
    let (vmm, segments) = (Policy::Gpushim(Ours::Vmm), Policy::Gpushim(Ours::Segments));
    if by_framework {
        return vec![Policy::Torch, Policy::TorchExpandable, vmm];
    }
    let recorded = policy.and_then(|name| name.parse().ok());
    // What is forwarded to the driver is in whole blocks.
    let recorded = match (recorded, policy) {
        (Some(recorded), _) => recorded,
        (None, Some("off")) => Policy::Gpushim(Ours::Blocks),
        (None, _) => vmm,
    };
    vec![recorded, vmm, segments]
}

fn fits(requests: &Requests, policy: Policy, memory: u64) -> bool {
    let device = ReplayDevice {
        limit: Some(memory),
        ..ReplayDevice::default()
    };
    let mut allocator = policy.build(&device, requests);
    run(requests, &mut *allocator).out_of_memory == 0
}

/// The least memory beyond `memory` bytes with which all requests are met, to within a step; `None` if it is not found.
fn least(requests: &Requests, policy: Policy, memory: u64) -> Option<u64> {
    let (mut few, mut enough) = (memory, None::<u64>);
    let mut more = requests.iter().last()?.bytes.max(STEP);
    for _ in 0..TRIES {
        let middle = match enough {
            None => few.checked_add(more)?,
            Some(enough) if enough - few <= STEP => break,
            Some(enough) => {
                few + ((enough - few) / 2)
                    .next_multiple_of(STEP)
                    .min(enough - few)
            }
        };
        if Some(middle) == enough {
            break;
        }
        if fits(requests, policy, middle) {
            enough = Some(middle);
        } else {
            few = middle;
            more = more.saturating_mul(2);
        }
    }
    enough
}
