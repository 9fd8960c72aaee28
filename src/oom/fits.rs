//! Allocators that would have served a request with the same memory, and the memory for the
//! recorded allocator.

use serde::Serialize;

use super::replayed::Replayed;
use super::search::Without;
use crate::replay::Policy;
use gpushim_alloc::Policy as Ours;

/// Steps of the search for the least memory, bytes.
const STEP: u64 = 2 << 20;
/// Highest number of tries.
const TRIES: usize = 12;

/// A try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Try {
    /// The allocator.
    #[cfg_attr(test, schemars(with = "String"))]
    pub policy: Policy,
    /// True for the allocator that served the run.
    pub recorded: bool,
    /// Bytes that it could hold of the device.
    pub memory: u64,
    /// True if all requests were met, also the failed one.
    pub fits: bool,
}

/// What was tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fits {
    /// With the memory that there was, the recorded allocator first; then the least memory with
    /// which that one meets all requests, if it was found.
    pub tries: Vec<Try>,
    /// Bytes that were there for the allocator.
    pub memory: u64,
    /// Why nothing was replayed, or the replay says nothing.
    pub untold: Option<&'static str>,
}

impl Fits {
    /// Reports that nothing was replayed.
    pub(super) fn untold(why: &'static str) -> Fits {
        Fits {
            untold: Some(why),
            ..Fits::default()
        }
    }

    /// Tries allocators on the run up to a request. The recorded one fails.
    pub(super) fn of(replayed: &Replayed<'_>, by_framework: bool) -> Fits {
        let memory = replayed.memory(Without::NONE);
        let recorded = Try {
            policy: replayed.policy,
            recorded: true,
            memory,
            fits: false,
        };
        let expandable = by_framework.then_some(Policy::TorchExpandable);
        let others = expandable.into_iter().chain([Policy::Gpushim(Ours::Vmm)]);
        let others = others.filter(|one| *one != replayed.policy);
        let others = others.map(|policy| Try {
            policy,
            recorded: false,
            fits: replayed.meets(policy, memory),
            memory,
        });
        let mut tries: Vec<Try> = [recorded].into_iter().chain(others).collect();
        tries.extend(least(replayed, memory).map(|memory| Try {
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

    /// Returns the other allocators that served it with the memory of the moment.
    pub fn others(&self) -> impl Iterator<Item = Policy> + '_ {
        let with_it = self.tries.iter().filter(|one| one.fits && !one.recorded);
        with_it.map(|one| one.policy)
    }

    /// Returns the additional bytes with which the recorded allocator served it.
    pub fn more(&self) -> Option<u64> {
        let met = self.tries.iter().find(|one| one.fits && one.recorded)?;
        Some(met.memory.saturating_sub(self.memory))
    }
}

/// Returns the least memory beyond `memory` bytes with which all requests succeed, to within a
/// step; `None` if it is not found.
fn least(replayed: &Replayed<'_>, memory: u64) -> Option<u64> {
    let (mut few, mut enough) = (memory, None::<u64>);
    let mut more = replayed.requests.iter().last()?.bytes.max(STEP);
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
        if replayed.meets(replayed.policy, middle) {
            enough = Some(middle);
        } else {
            few = middle;
            more = more.saturating_mul(2);
        }
    }
    enough
}
