//! Names of the allocators that a run can be replayed with.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::allocator::Allocator;
use super::bfc::Bfc;
use super::caching::Caching;
use super::device::{ReplayDevice, UNLIMITED};
use super::gpushim::GpushimAllocator;
use super::torch::{Elastic, Torch};
use crate::replay::rmm;
use gpushim_alloc as alloc;
use gpushim_analysis::requests::Requests;
use gpushim_config::duration;
use gpushim_recording::error::{Error, Result, failed};

/// An allocator for a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A policy of gpushim, for `cudaMalloc` and for streams. `auto` is `vmm`.
    Gpushim(alloc::Policy),
    /// PyTorch's caching allocator.
    Torch,
    /// PyTorch's caching allocator with expandable segments.
    TorchExpandable,
    /// PyTorch's caching allocator with expandable segments that have memory only where a block is.
    TorchElastic,
    /// Pool of RMM, `pool_memory_resource`.
    RmmPool,
    /// Arenas of RMM, `arena_memory_resource`.
    RmmArena,
    /// The best-fit-with-coalescing allocator of TensorFlow and XLA.
    Bfc,
}

impl Policy {
    /// All allocators, gpushim's first.
    pub const ALL: [Policy; 8] = [
        Policy::Gpushim(alloc::Policy::Vmm),
        Policy::Gpushim(alloc::Policy::Blocks),
        Policy::Torch,
        Policy::TorchExpandable,
        Policy::TorchElastic,
        Policy::RmmPool,
        Policy::RmmArena,
        Policy::Bfc,
    ];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Gpushim(policy) => policy.name(),
            Policy::Torch => "torch",
            Policy::TorchExpandable => "torch-expandable",
            Policy::TorchElastic => "torch-elastic",
            Policy::RmmPool => "rmm-pool",
            Policy::RmmArena => "rmm-arena",
            Policy::Bfc => "bfc",
        }
    }

    /// Returns a description for the table.
    pub const fn about(self) -> &'static str {
        match self {
            Policy::Gpushim(alloc::Policy::Vmm) => "gpushim, by default",
            Policy::Gpushim(_) => "gpushim",
            Policy::Torch => "PyTorch's allocator",
            Policy::TorchExpandable => "PyTorch's with expandable_segments",
            Policy::TorchElastic => "PyTorch's, expandable and elastic (GPUSHIM_ELASTIC)",
            Policy::RmmPool => "RMM's pool, without initial size",
            Policy::RmmArena => "RMM's arenas, half of the device at once",
            Policy::Bfc => "TensorFlow's and XLA's BFC, growing",
        }
    }

    /// Makes the allocator for some requests.
    pub fn build(self, device: &ReplayDevice, requests: &Requests) -> Box<dyn Allocator> {
        let blocks = requests.blocks();
        let capacity = device.limit.unwrap_or(UNLIMITED);
        match self {
            Policy::Gpushim(policy) => Box::new(GpushimAllocator::new(device, policy, blocks)),
            Policy::Torch => Box::new(Caching::new(Torch::new(requests, None), capacity, blocks)),
            Policy::TorchExpandable => Box::new(Caching::new(
                Torch::new(requests, Some(true)),
                capacity,
                blocks,
            )),
            Policy::TorchElastic => Box::new(Elastic::new(device, requests)),
            Policy::RmmPool => Box::new(Caching::new(rmm::Pool, capacity, blocks)),
            Policy::RmmArena => Box::new(Caching::new(rmm::Arena::default(), capacity, blocks)),
            Policy::Bfc => Box::new(Caching::new(Bfc::default(), capacity, blocks)),
        }
    }
}

/// Parses a value of `GPUSHIM_DECAY`. The result is in ns, as in [`ReplayDevice::decay`].
pub fn decay(text: &str) -> Option<u64> {
    let decay = match text {
        "off" => Duration::ZERO,
        _ => duration(text)?,
    };
    Some(decay.as_nanos().try_into().unwrap_or(u64::MAX))
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
    type Err = Error;

    fn from_str(name: &str) -> Result<Policy> {
        // `GPUSHIM_POLICY` accepts this name, too.
        if name == "auto" {
            return Ok(Policy::Gpushim(alloc::Policy::Vmm));
        }
        let mut all = Policy::ALL.into_iter();
        all.find(|policy| policy.name() == name).ok_or_else(|| {
            let names = Policy::ALL.map(Policy::name).join(", ");
            failed!("no such policy; there are {names}")
        })
    }
}
