//! Figures of a run: what comparisons need, and a baseline keeps.

use serde::Deserialize;

use crate::recording::Function;

/// Figures of one recording.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunFigures {
    /// Rank of the process in its job, if it has one.
    #[serde(default)]
    pub rank: Option<String>,
    /// Figures of each used device.
    #[serde(default, rename = "device")]
    pub devices: Vec<MemoryFigures>,
    /// Certain growth of live memory by layer.
    #[serde(default)]
    pub growth: Vec<Growth>,
    /// Bytes that iterations certainly left allocated.
    #[serde(default)]
    pub leaked: u64,
    /// Number of requests that ran out of memory.
    #[serde(default)]
    pub out_of_memory: u64,
    /// Reason for which growth and leaks are uncertain, if they are. A baseline does not have it.
    #[serde(skip)]
    pub untold: Option<String>,
    /// Reason for which the recording may lack a failed request. A baseline does not have it.
    #[serde(skip)]
    pub unread: Option<&'static str>,
}

/// Figures of one kind of memory, bytes. A baseline has those up to `holders`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryFigures {
    /// Device ordinal; `None` for all devices, or if it is not known.
    #[serde(default)]
    pub gpu: Option<u8>,
    /// Kind of the peak: `tensors` or `device memory`.
    pub of: String,
    /// Most bytes that were live.
    pub peak: u64,
    /// Most bytes that were held from the driver; 0 where `diff` compares.
    pub reserved: u64,
    /// Call sites that held most at the peak.
    #[serde(default, rename = "holder")]
    pub holders: Vec<Figure>,
    /// Owners of the memory at the peak, in words.
    #[serde(skip)]
    pub owners: Vec<Figure>,
    /// Peak above entry of each phase, in the order in which they first began.
    #[serde(skip)]
    pub phases: Vec<Figure>,
    /// Number of iterations; 0 where none were found.
    #[serde(skip)]
    pub iterations: usize,
    /// Mean duration of an iteration, ns.
    #[serde(skip)]
    pub iteration_ns: u64,
}

/// Bytes of a call site, an owner or a phase.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Function with its place, owner in words, or name of the phase.
    #[serde(rename = "by")]
    pub name: String,
    /// Bytes of its live blocks, or of the phase.
    pub bytes: u64,
    /// Function of a call site, where `diff` compares.
    #[serde(skip)]
    pub function: Option<Function>,
}

/// Growth of live memory on one layer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Growth {
    /// Kind of memory: `tensors`, `device memory`, `pinned host memory` and so on.
    pub of: String,
    /// Growth of live bytes in each iteration.
    pub per_iteration: u64,
    /// Sentence about the growth.
    #[serde(skip)]
    pub text: String,
}

impl RunFigures {
    /// Growth of a layer in each iteration, bytes.
    pub fn growth_of(&self, of: &str) -> u64 {
        let growth = self.growth.iter().find(|growth| growth.of == of);
        growth.map_or(0, |growth| growth.per_iteration)
    }
}

impl MemoryFigures {
    /// Names the peak: `tensors on gpu 0`.
    pub fn in_words(&self) -> String {
        match self.gpu {
            Some(gpu) => format!("{} on gpu {gpu}", self.of),
            None => self.of.clone(),
        }
    }
}

impl Figure {
    /// Makes a figure without a function.
    pub fn of(name: impl Into<String>, bytes: u64) -> Figure {
        Figure {
            name: name.into(),
            bytes,
            function: None,
        }
    }
}
