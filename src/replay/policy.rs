//! The allocators that a run can be replayed with, by name.

use std::fmt;
use std::str::FromStr;

use super::bfc::Bfc;
use super::device::Simulated;
use super::expandable::Expandable;
use super::ours::{Ours, layout};
use super::plan::{MOST, Plan, Planned};
use super::requests::Requests;
use super::torch::Torch;
use super::{Allocator, rmm};
use crate::{mempool, pool};

/// An allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One of ours.
    Ours(pool::Policy),
    /// PyTorch's caching allocator.
    Torch,
    /// The same with expandable segments.
    TorchExpandable,
    /// A placement that was made knowing all lifetimes.
    Plan,
    /// RMM's pool.
    RmmPool,
    /// RMM's arenas.
    RmmArena,
    /// The best-fit-with-coalescing allocator of TensorFlow and XLA.
    Bfc,
}

impl Policy {
    /// All of them: ours first.
    pub const ALL: [Policy; 10] = [
        Policy::Ours(pool::Policy::Vmm),
        Policy::Ours(pool::Policy::Segments),
        Policy::Ours(pool::Policy::Blocks),
        Policy::Ours(pool::Policy::Bins),
        Policy::Plan,
        Policy::Torch,
        Policy::TorchExpandable,
        Policy::RmmPool,
        Policy::RmmArena,
        Policy::Bfc,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Ours(pool::Policy::Vmm) => "vmm",
            Policy::Ours(pool::Policy::Segments) => "segments",
            Policy::Ours(pool::Policy::Blocks) => "blocks",
            Policy::Ours(pool::Policy::Bins) => "bins",
            Policy::Ours(pool::Policy::Off) => "off",
            Policy::Plan => "plan",
            Policy::Torch => "torch",
            Policy::TorchExpandable => "torch-expandable",
            Policy::RmmPool => "rmm-pool",
            Policy::RmmArena => "rmm-arena",
            Policy::Bfc => "bfc",
        }
    }

    /// What there is to know of it, for people.
    pub const fn about(self) -> &'static str {
        match self {
            Policy::Ours(_) => "gpushim",
            Policy::Plan => "every place chosen beforehand",
            Policy::Torch => "PyTorch's allocator",
            Policy::TorchExpandable => "PyTorch's with expandable_segments",
            Policy::RmmPool => "RMM's pool, without initial size",
            Policy::RmmArena => "RMM's arenas, as far as they reach",
            Policy::Bfc => "TensorFlow's and XLA's BFC, growing",
        }
    }

    /// Makes it, for these requests.
    ///
    /// # Errors
    /// Why it cannot serve them, a sentence.
    pub fn build(self, device: &Device, requests: &Requests) -> Result<Box<dyn Allocator>, String> {
        let blocks = requests.blocks();
        let capacity = device.limit.unwrap_or(u64::MAX);
        Ok(match self {
            Policy::Ours(policy) => {
                let plain = pool::Settings {
                    policy,
                    limit: device.limit,
                    reuse: device.reuse,
                    cache_max: device.cache_max,
                    ..pool::Settings::default()
                };
                let ordered = mempool::Settings {
                    layout: layout(device.ordered.unwrap_or(policy)),
                    page: device.page,
                    ..mempool::Settings::default()
                };
                let simulated = Simulated::new(device.limit.unwrap_or(UNLIMITED), device.lag);
                Box::new(Ours::new(simulated, plain, ordered, blocks))
            }
            Policy::Plan => {
                let plan = Plan::of(requests)
                    .ok_or_else(|| format!("a plan is made for at most {MOST} blocks"))?;
                Box::new(Planned::new(capacity, plan))
            }
            Policy::Torch => Box::new(Torch::new(capacity, blocks)),
            Policy::TorchExpandable => Box::new(Expandable::new(capacity, blocks)),
            Policy::RmmPool => Box::new(rmm::Pool::new(capacity, blocks)),
            Policy::RmmArena => Box::new(rmm::Arena::new(capacity, blocks)),
            Policy::Bfc => Box::new(Bfc::new(capacity, blocks)),
        })
    }
}

/// A device on which nothing runs out, bytes: more than any has.
const UNLIMITED: u64 = 1 << 46;

/// What is replayed on.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// The most bytes that can be held.
    pub limit: Option<u64>,
    /// How many requests the work of the device is behind the host.
    pub lag: u64,
    /// Of our policies: `GPUSHIM_REUSE`.
    pub reuse: pool::Reuse,
    /// Of `vmm`: `GPUSHIM_PAGE`, bytes.
    pub page: u64,
    /// Of our policies: `GPUSHIM_CACHE_MAX`, bytes.
    pub cache_max: Option<u64>,
    /// Of our policies: another one for stream-ordered memory, as `auto` has it.
    pub ordered: Option<pool::Policy>,
}

impl Default for Device {
    fn default() -> Device {
        Device {
            limit: None,
            lag: 0,
            reuse: pool::Reuse::default(),
            page: mempool::Settings::default().page,
            cache_max: None,
            ordered: None,
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for Policy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Policy, String> {
        let mut all = Policy::ALL.into_iter();
        all.find(|policy| policy.name() == name).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            format!("no such policy; there are {names}")
        })
    }
}
